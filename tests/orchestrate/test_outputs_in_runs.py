"""A submitted run's directory is its own: no regrading and no merge of others is written into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrate.project import Project, tree

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One merged run with two benchmarks, and a rollouts file of somebody else."""
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    project.benchmark("math", tasks=2, shards=2)
    project.benchmark("more", tasks=2, shards=1)
    project.submit("--wait", timeout_s=100)
    (project.root / "r.jsonl").write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {}}\n')
    return project


def refused(project: Project, *arguments: str, match: str) -> None:
    before = tree(project.run_dir)

    done = project.gym(*arguments)

    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert match in done.stderr
    assert "--overwrite" not in done.stderr
    assert tree(project.run_dir) == before


@pytest.mark.parametrize("flags", [[], ["--overwrite"], ["--resume"]], ids=["plain", "overwrite", "resume"])
@pytest.mark.parametrize("place", ["math/rollouts.jsonl", "math/new.jsonl", "new/deep/rollouts.jsonl"])
def test_a_regrading_is_not_written_into_a_submitted_run(project: Project, place: str, flags: list[str]) -> None:
    output = str(project.run_dir / place)

    for source in ("r.jsonl", str(project.run_dir / "more")):
        command = ["reverify", "--rollouts", source, "-o", output, "--verifier", "exact_match", *flags]
        refused(project, *command, match=f"the output is inside the submitted run {project.run_dir.name}")


def test_a_regrading_through_a_link_into_a_submitted_run_is_refused(project: Project) -> None:
    (project.root / "latest").symlink_to(project.run_dir / "math")

    command = ["reverify", "--rollouts", "r.jsonl", "-o", "latest/x.jsonl", "--verifier", "exact_match"]
    refused(project, *command, match="inside the submitted run")


@pytest.mark.parametrize("command", ["merge", "aggregate"])
def test_a_merge_takes_no_place_and_no_file_of_another_run(project: Project, command: str) -> None:
    run = project.run_dir
    for unlink in (False, True):
        if unlink:
            # A benchmark that is not merged yet has its place all the same.
            for file in (run / "math").glob("rollouts*"):
                file.unlink()
        refused(project, command, "r.jsonl", "-o", str(run / "math" / "rollouts.jsonl"), match=f"run {run.name}/math")
        refused(project, command, str(run / "more"), "-o", str(run / "math" / "rollouts.jsonl"), match=f"run {run.name}/math")
    refused(project, command, "r.jsonl", "-o", str(run / "new.jsonl"), match="an input is not")
    refused(project, command, str(run / "math"), "-o", str(run / "plan.json"), match="a file of the submitted run")


def test_the_result_of_a_run_is_merged_again_where_it_belongs(project: Project) -> None:
    place = project.run_dir / "math" / "rollouts.jsonl"
    before = place.read_bytes()

    for command in ("merge", "aggregate"):
        done = project.gym(command, str(project.run_dir / "math"), "-o", str(place))
        assert done.returncode == 0, done.stderr
    beside = project.gym("merge", str(project.run_dir / "math"), "-o", str(place.with_name("mine.jsonl")))

    assert beside.returncode == 0, beside.stderr
    assert place.read_bytes() == before
