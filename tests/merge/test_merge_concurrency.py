"""Merges by hand and finishers of jobs at once: one result, no leftovers, nobody's lock removed.

``GYM_EVAL_SOAK_ROUNDS`` sets how often; ``make soak`` asks for a hundred.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from merge.publication.projection_check import ProjectionState, check_projection
from tests.merge import jobs
from tests.merge.build import answered, fill_all, plan

ROUNDS = int(os.environ.get("GYM_EVAL_SOAK_ROUNDS", "2"))
PUBLISHED = {
    "rollouts.jsonl", "rollouts_coverage.json", "rollouts_aggregate_metrics.json", "rollouts_merge.json", "rollouts_merge.lock",
}  # fmt: skip


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_sixteen_merges_at_once_publish_one_result_and_leave_nothing_behind(tmp_path: Path) -> None:
    made = plan(tmp_path / "bench", shards=3, tasks=12, repeats=2)
    shards = [str(shard.rollouts) for shard in fill_all(made, lambda task, _: answered(float(task % 2)))]
    before = {path: path.read_bytes() for path in (made.directory / "shards").rglob("*") if path.is_file()}
    results: set[bytes] = set()
    found: Counter[str] = Counter()

    for number in range(ROUNDS):
        target = tmp_path / f"round{number}" / "rollouts.jsonl"
        target.parent.mkdir()
        command = [sys.executable, "-m", "tests.merge.at_once", "16", str(target), *shards]
        done = subprocess.run(command, cwd=jobs.ROOT, capture_output=True, text=True, check=True)
        found.update(done.stdout.splitlines())
        assert check_projection(RunArtifacts(target)).state is ProjectionState.VERIFIED, done.stdout
        files = {path.name for path in target.parent.iterdir()} - {"rollouts_exports.jsonl", "rollouts_exports.lock"}
        # The lock's file may stay: whoever removed it could remove that of the next holder.
        assert files - {"rollouts_merge.lock"} == PUBLISHED - {"rollouts_merge.lock"}
        results.add(target.read_bytes())

    assert len(results) == 1
    assert set(found) <= {"merge 0", "merged 0", "already_merged 0"}
    assert found["merge 0"] == 8 * ROUNDS
    assert found["merged 0"] + found["already_merged 0"] == 8 * ROUNDS
    assert {path: path.read_bytes() for path in before} == before
