"""A shard that was opened again after its benchmark was merged: what was published before is never taken for what is now."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.formats.record import Attempt, record
from collector.outcomes import Completed
from collector.session import JobFacts, ShardSession
from collector.shard.lock import ShardLock
from merge.publication.partial import published_at
from orchestrate.config.load import settings_of
from orchestrate.jobs.tail import finish_partly, is_finished
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan
from tests.merge.build import answered
from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def merged(project: Project) -> Project:
    """Four rollouts in two shards, one of which failed for good, merged and exported."""
    project.config["export"] = {"csv": {}}
    project.benchmark("math", tasks=4, shards=2, retry={"max_attempts": 1})
    dataset = Path(project.config["driver"]["benchmarks"]["math"]["run"]["input_jsonl_fpath"])
    dataset.write_text(dataset.read_text().replace("math-3]]", "math-3]] [[mode: 500]]"))
    project.submit("--wait", code=6, timeout_s=100)
    return project


def the_run(project: Project) -> tuple[RunDir, BenchmarkPlan]:
    run = RunDir(project.run_dir)
    (benchmark,) = read_plan(run).benchmarks
    return run, benchmark


def open_again(project: Project, *, answer: Completed | None = None) -> None:
    """Another attempt of the rollout that failed, interrupted unless there is an ``answer``."""
    run, benchmark = the_run(project)
    artifacts = run.shard(benchmark, 1)

    async def begin() -> None:
        with ShardLock(artifacts.lock) as lock:
            session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
            index = next(i for i in range(len(session.store.inventory)) if session.store.inventory.rollout_id(i) == "3-0")
            await session.dispatch(index, 1)
            if answer is not None:
                source = session.store.inventory.line(index)
                attempt = Attempt(
                    index=index, number=1, rollout_id="3-0", run_id=session.run_id, session=session.number,
                    source=source, row=json.loads(source),
                )  # fmt: skip
                made = record(attempt, answer, 0.5)
                await session.settle(index, made.draft, made.line)
            await session.end("terminated")

    asyncio.run(begin())


def publish_partly(project: Project) -> RunArtifacts:
    run, benchmark = the_run(project)
    settings = settings_of(read_plan(run).config, "math", output=run.merged(benchmark).rollouts)
    more = settings.model_copy(update={"retry": settings.retry.model_copy(update={"max_attempts": 3})})
    published = finish_partly(run, benchmark, more).published
    assert published is not None
    return published


def test_what_was_merged_is_called_older_and_is_not_exported_as_the_run(merged: Project) -> None:
    before = merged.status()["benchmarks"][0]
    run, benchmark = the_run(merged)
    assert (before["merged_is_older"], before["merged_partially"], is_finished(run, benchmark)) == (False, False, True)
    open_again(merged)

    found, said = merged.status()["benchmarks"][0], merged.gym("status").stdout
    configured, by_name = merged.gym("export", str(merged.run_dir)), merged.gym("export", "csv", str(merged.run_dir))

    assert found["merged_is_older"] is True
    assert "rollouts.jsonl (older than its shards, which recorded more since)" in said
    assert not is_finished(run, benchmark)
    assert (configured.returncode, by_name.returncode) == (6, 6)
    assert "not merged since its shards went on: math" in configured.stderr
    assert "older than its shards" in by_name.stderr


def test_to_watch_a_run_that_completed_after_its_merge_does_not_end_as_if_all_were_in_the_result(merged: Project) -> None:
    open_again(merged, answer=answered(1.0))
    assert merged.status()["benchmarks"][0]["measured"] == 4

    watched = merged.gym("watch", "--every", "1")

    assert watched.returncode == 6, watched.stdout
    assert (
        watched.stderr
        == f"gym eval watch: math: was not merged since its shards went on. See gym eval logs {merged.run_dir.name}.\n"
    )


def test_the_file_itself_is_exported_when_it_is_named_and_that_is_said(merged: Project, tmp_path: Path) -> None:
    open_again(merged)
    rollouts = merged.run_dir / "math" / "rollouts.jsonl"

    done = merged.gym("export", "csv", str(rollouts), f"+output_fpath={tmp_path / 'old.csv'}")

    assert done.returncode == 0, done.stderr
    assert "older than its shards" in done.stderr
    assert len((tmp_path / "old.csv").read_text().splitlines()) == 1 + 3


def test_a_report_says_so(merged: Project, tmp_path: Path) -> None:
    open_again(merged)

    done = merged.gym("report", str(merged.run_dir), "-o", str(tmp_path / "page.html"))

    assert done.returncode == 0, done.stderr
    assert "older than its shards" in (tmp_path / "page.html").read_text()


def test_a_comparison_says_so(merged: Project) -> None:
    open_again(merged)

    done = merged.gym("compare", str(merged.run_dir), str(merged.run_dir), "--output-dir", str(merged.root / "compared"))

    assert "older than its shards" in done.stderr


def test_an_aggregate_is_made_of_the_shards_as_they_are(merged: Project, tmp_path: Path) -> None:
    open_again(merged)

    more = ("--allow-partial", "+max_attempts=3")
    done = merged.gym("aggregate", str(merged.run_dir), "-o", str(tmp_path / "new.jsonl"), *more)

    assert done.returncode == 6, done.stderr
    coverage = json.loads((tmp_path / "new.partial_coverage.json").read_bytes())
    assert (coverage["attempts"], coverage["states"]["unknown"]) == (5, 1)


def test_a_newer_partial_result_is_the_runs_and_the_whole_one_is_named_beside_it(merged: Project, tmp_path: Path) -> None:
    open_again(merged)
    whole = merged.run_dir / "math" / "rollouts.jsonl"
    rows = whole.read_bytes()

    partial = publish_partly(merged)

    assert published_at(RunArtifacts(whole)) == partial
    found, said = merged.status()["benchmarks"][0], merged.gym("status").stdout
    assert (found["merged"], found["merged_partially"], found["older_result"]) == (str(partial.rollouts), True, str(whole))
    assert f"the whole result of before its shards were opened again: {whole}" in said
    refused = merged.gym("export", "csv", str(merged.run_dir), f"+output_fpath={tmp_path / 'a.csv'}")
    assert (refused.returncode, "partial" in refused.stdout + refused.stderr) == (1, True)
    assert merged.gym("export", str(merged.run_dir)).returncode == 6
    listed = json.loads(merged.gym("list", "--json").stdout)
    assert [run["merged"] for run in listed] == [0]
    assert whole.read_bytes() == rows


def test_the_whole_result_replaces_both(merged: Project) -> None:
    open_again(merged)
    publish_partly(merged)
    # The interrupted attempt was beyond the budget of the run itself, which is final as it is.
    assert merged.status()["benchmarks"][0]["coverage"]["unfinished"] == 0

    merged.submit("--wait", code=6, timeout_s=100)

    found = merged.status()["benchmarks"][0]
    assert (found["merged_partially"], found["merged_is_older"], found["older_result"]) == (False, False, None)
    assert not list((merged.run_dir / "math").glob("rollouts.partial*"))
