"""What is unfinished is a question of the limits that a run was collected under: every command counts under those."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, IncompleteError
from collector.settings import RetrySettings
from collector.state.recorded_retry import recorded_retry
from exporters.source import is_partial, read_coverage
from orchestrate.cli.aggregate import main as aggregate
from orchestrate.cli.merge import main as merge
from orchestrate.cli.report import main as report
from orchestrate.cli.why import main as why
from orchestrate.masked_config import publish_config
from tests.collector.shards import fill, settings_for, write_dataset
from tests.orchestrate.project import Project
from tests.support import testkit

testkit.install()

ROWS: list[dict[str, Any]] = [{"n": 0, "grade": 1}, {"n": 1, "grade": 1, "fail": 99}]


def collected(directory: Path, **retry: Any) -> RunArtifacts:
    """One rollout measured and one that fails at each try, as ``gym eval run`` leaves them."""
    write_dataset(directory / "tasks.jsonl", ROWS)
    settings = settings_for(directory, retry=retry)
    fill(settings)
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    publish_config(artifacts, settings)
    return artifacts


def states_of(coverage: dict[str, Any]) -> dict[str, int]:
    return {state: count for state, count in coverage["states"].items() if count}


@pytest.mark.parametrize("command", [aggregate, merge])
def test_a_run_of_few_attempts_is_finished_for_every_command(tmp_path: Path, command: Any) -> None:
    """It was unfinished for all but the one that had collected it: three attempts was what they thought of."""
    artifacts = collected(tmp_path, max_attempts=1)

    with pytest.raises(IncompleteError, match="1 of 2"):
        command([str(artifacts.rollouts), "-o", str(tmp_path / "out.jsonl")])

    published = json.loads((tmp_path / "out_coverage.json").read_bytes())
    assert states_of(published) == {"measured": 1, "exhausted": 1}
    assert published["unfinished"] == 0
    coverage = read_coverage(artifacts)
    assert coverage is not None
    assert not is_partial(coverage)


def test_a_run_of_many_attempts_is_not_finished_after_three(tmp_path: Path) -> None:
    artifacts = collected(tmp_path, max_attempts=3)
    text = artifacts.config.read_text()
    artifacts.config.write_text(text.replace("max_attempts: 3", "max_attempts: 9"))

    with pytest.raises(IncompleteError, match="1 rollout is unfinished"):
        aggregate([str(artifacts.rollouts), "-o", str(tmp_path / "out.jsonl")])

    coverage = read_coverage(artifacts)
    assert coverage is not None
    assert is_partial(coverage)


def test_a_key_counts_for_more_than_what_the_run_had(tmp_path: Path) -> None:
    artifacts = collected(tmp_path, max_attempts=1)

    with pytest.raises(IncompleteError, match="1 rollout is unfinished"):
        aggregate([str(artifacts.rollouts), "-o", str(tmp_path / "out.jsonl"), "+max_attempts=2"])


def test_why_and_the_report_say_what_a_resume_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifacts = collected(tmp_path, max_attempts=1)

    assert why([str(artifacts.rollouts), "1-0"]) == 0
    assert report([str(artifacts.rollouts), "-o", str(tmp_path / "page.html")]) == 0

    assert "would be dispatched" not in capsys.readouterr().out
    assert "exhausted" in (tmp_path / "page.html").read_text()


def test_the_benchmark_of_a_submitted_run_is_counted_by_its_plan(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("t", tasks=4, marks="", agent={"type": "scripted"}, retry={"max_attempts": 1})
    dataset = project.root / "0.jsonl"
    rows = [json.loads(line) for line in dataset.read_text().splitlines()]
    dataset.write_text("".join(json.dumps({**row, "fail": 9 * (n == 3)}) + "\n" for n, row in enumerate(rows)))
    project.submit("--wait", code=6, timeout_s=100)

    done = project.gym("aggregate", f"{project.run_dir}/t", "-o", "out.jsonl", "--json")

    (shown,) = project.status()["benchmarks"]
    assert done.returncode == 6
    assert states_of(json.loads(done.stdout)["coverage"]) == states_of(shown["coverage"]) == {"measured": 3, "exhausted": 1}


@pytest.mark.parametrize("text", ["retry: [", "retry: 3", "other: 1", "retry: {max_attempts: none}"])
def test_a_file_of_settings_that_says_nothing_of_retries_is_told(tmp_path: Path, text: str) -> None:
    artifacts = collected(tmp_path, max_attempts=1)
    artifacts.config.write_text(text)

    with pytest.raises(CorruptArtifactError, match="no settings of retries"):
        recorded_retry([artifacts])


def test_without_a_file_of_settings_the_defaults_hold(tmp_path: Path) -> None:
    artifacts = collected(tmp_path, max_attempts=1)
    artifacts.config.unlink()

    assert recorded_retry([artifacts]) == RetrySettings()
