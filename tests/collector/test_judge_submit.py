"""A judge as a service of a job, beside the model it grades: on one machine, and on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.collector.shards import rows_of
from tests.orchestrate.judged import PROMPT, judged, with_judge
from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})


def test_a_service_of_the_job_grades_and_the_merged_result_says_what_it_cost(project: Project) -> None:
    with_judge(project)

    said = project.submit("--wait", timeout_s=120)

    merged = project.run_dir / "essays" / "rollouts.jsonl"
    assert "0.6667 (6/6)" in said
    assert (len(project.requests()), len(judged(project))) == (6, 6)
    assert {row["judge"]["model"] for row in rows_of(merged)} == {"judge-model"}
    metrics = json.loads((merged.parent / "rollouts_aggregate_metrics.json").read_text())[0]["agent_metrics"]
    assert metrics["mean/judge_output_tokens"] == 2.0


def test_where_a_service_listened_is_not_part_of_the_run_and_its_model_is(project: Project) -> None:
    with_judge(project)
    project.submit("--wait", timeout_s=120)

    project.submit("--wait", timeout_s=120)
    project.config["driver"]["benchmarks"]["essays"]["run"]["verifier"]["prompt"]["user"] += " Be strict."
    project.submit("--wait", timeout_s=120)

    runs = [path for path in project.runs.iterdir() if (path / "plan.json").exists()]
    assert len(runs) == 2
    assert len(judged(project)) == 12


@pytest.fixture
def failed_run(project: Project) -> Project:
    """A submitted run whose judge failed for every rollout with the grade 0, for good."""
    with_judge(project)
    run = project.config["driver"]["benchmarks"]["essays"]["run"]
    run["verifier"]["prompt"]["user"] = "{mode} " + PROMPT
    run["retry"] = {"max_attempts": 1}
    project.config["export"] = {"csv": {}}
    dataset = Path(run["input_jsonl_fpath"])
    rows = [json.loads(line) for line in dataset.read_text().splitlines()]
    made = [{**row, "mode": "" if row["grade"] else "[[mode: 500 x1]]"} for row in rows]
    dataset.write_text("".join(json.dumps(row) + "\n" for row in made))
    said = project.submit("--wait", code=6, timeout_s=120)
    # Not for another reason: both shards are final, and only judgements failed.
    assert "1 (4/6" in said, said + project.logs()
    return project


def test_a_submitted_runs_failed_judgements_are_judged_again_in_its_shards(failed_run: Project, tmp_path: Path) -> None:
    """By the run's name; the merged result is renewed, and the same submit finds nothing to do. Nobody is asked anew."""
    asked = len(failed_run.requests())
    name = failed_run.run_dir.name
    words = ["reverify", "--rollouts", name, "--judge-failed-only", "--append", "+retry.max_attempts=2"]

    unknown = failed_run.gym(*words)
    with ModelServer(tmp_path, model="judge-model", log=failed_run.root / "judge.jsonl") as judge:
        done = failed_run.gym(*words, f"+verifier.base_url={judge.base_url}")
        assert done.returncode == 0, done.stderr
        failed_run.config["driver"]["benchmarks"]["essays"]["run"]["retry"] = {"max_attempts": 2}
        merged = len(rows_of(failed_run.run_dir / "essays" / "rollouts.jsonl"))
        said = failed_run.submit("--wait", timeout_s=120)

    assert unknown.returncode == 2
    assert "verifier.base_url: where the judge answered was known to the run's jobs only" in unknown.stderr
    assert "score     0.6667 (6/6)" in done.stdout
    assert "merged: " in done.stderr
    assert merged == 6
    assert "0.6667 (6/6)" in said
    assert len(failed_run.requests()) == asked


@pytest.mark.parametrize("is_by_hand", [True, False], ids=["by-hand", "by-submit"])
def test_the_configured_export_of_the_result_before_gives_way(failed_run: Project, tmp_path: Path, is_by_hand: bool) -> None:
    name, table = failed_run.run_dir.name, failed_run.run_dir / "essays" / "rollouts_table.csv"
    words = ["reverify", "--rollouts", name, "--judge-failed-only", "--append", "+retry.max_attempts=2"]
    assert len(table.read_text().splitlines()) == 1 + 4
    with ModelServer(tmp_path, model="judge-model", log=failed_run.root / "judge.jsonl") as judge:
        done = failed_run.gym(*words, f"+verifier.base_url={judge.base_url}")
    assert f"gym eval export {name}" in done.stderr

    exported = failed_run.gym("export", name) if is_by_hand else None
    failed_run.config["driver"]["benchmarks"]["essays"]["run"]["retry"] = {"max_attempts": 2}
    said = failed_run.submit("--wait", timeout_s=120)

    assert exported is None or (exported.returncode, "Export csv: succeeded" in exported.stdout) == (0, True)
    assert len(table.read_text().splitlines()) == 1 + 6
    assert said.count(str(table)) == 1


@pytest.mark.slurm
def test_on_a_cluster_each_job_has_its_model_and_its_judge(slurm: SlurmCluster, tmp_path: Path) -> None:
    del slurm
    compute = {"type": "slurm", "partition": "batch", "walltime": "10m", "mem": "400M"}
    project = with_judge(Project(tmp_path / "user", compute))

    said = project.submit("--wait", timeout_s=120)

    assert "0.6667 (6/6)" in said
    assert len(judged(project)) == 6
