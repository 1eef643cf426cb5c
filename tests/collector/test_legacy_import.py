"""Runs of NeMo Gym, which have no manifest and no journal, are taken over only when asked, and stay marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, RefusedError
from collector.settings import RunSettings
from collector.shard.store import RolloutStore
from tests.collector.shards import asked, fill, prepare, rows_of, settings_for, states, write_dataset


def legacy_run(tmp_path: Path) -> tuple[RunSettings, RunArtifacts]:
    """Tasks 0 and 1 measured, 2 failed once, 3 failed terminally, 4 failed three times, 5 never tried."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(6)])
    settings = settings_for(tmp_path)
    artifacts = prepare(settings)
    artifacts.manifest.unlink()
    artifacts.journal.unlink()
    done = [{"_ng_task_index": n, "_ng_rollout_index": 0, "reward": float(n), "response": {}} for n in range(2)]
    failures = [(2, "agent_run_error", None), (3, "permanent", True), *[(4, "judge_failed", False)] * 3]
    failed = [
        {"_ng_task_index": n, "_ng_rollout_index": 0, "_ng_failure_class": name, "_ng_failure_terminal": terminal}
        for n, name, terminal in failures
    ]
    write_lines(artifacts.rollouts, done)
    write_lines(artifacts.failures, failed)
    return settings, artifacts


def write_lines(path: Path, found: list[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in found))


def test_files_without_a_manifest_are_refused_unless_asked_for(tmp_path: Path) -> None:
    settings, artifacts = legacy_run(tmp_path)
    before = artifacts.rollouts.read_bytes()

    with pytest.raises(RefusedError, match="allow_unsafe_resume"):
        fill(settings)

    assert artifacts.rollouts.read_bytes() == before
    assert not artifacts.manifest.exists()


def test_an_imported_run_keeps_its_results_and_its_used_attempts_and_is_marked_unverified(tmp_path: Path) -> None:
    settings, artifacts = legacy_run(tmp_path)
    before = artifacts.rollouts.read_bytes()

    result = fill(settings.model_copy(update={"allow_unsafe_resume": True}))

    assert artifacts.rollouts.read_bytes().startswith(before)
    assert sorted(asked(tmp_path)) == ["2-0", "5-0"]
    assert states(settings) == {"measured": 4, "failed": 1, "exhausted": 1}
    assert not result.coverage.identity_verified
    retried = next(row for row in rows_of(artifacts.rollouts) if row["_ng_task_index"] == 2)
    assert retried["_ng_attempt_index"] == 1


def test_an_imported_run_resumes_like_any_other_afterwards(tmp_path: Path) -> None:
    settings, artifacts = legacy_run(tmp_path)
    fill(settings.model_copy(update={"allow_unsafe_resume": True}))
    calls = asked(tmp_path)

    fill(settings)

    assert asked(tmp_path) == calls
    with RolloutStore.read(artifacts) as store:
        assert store.manifest.legacy_import


@pytest.mark.parametrize(
    ("tail", "tasks_asked"),
    [
        pytest.param(b'{"_ng_task_index":5,"_ng_rollout_index":0,"rew', ["2-0", "5-0"], id="torn"),
        pytest.param(b'{"_ng_task_index":5,"_ng_rollout_index":0,"reward":1}', ["2-0"], id="whole-without-newline"),
    ],
)
def test_an_unfinished_last_line_is_repaired(tmp_path: Path, tail: bytes, tasks_asked: list[str]) -> None:
    settings, artifacts = legacy_run(tmp_path)
    artifacts.rollouts.write_bytes(artifacts.rollouts.read_bytes() + tail)

    fill(settings.model_copy(update={"allow_unsafe_resume": True}))

    assert sorted(asked(tmp_path)) == tasks_asked
    assert states(settings)["measured"] == 4


def test_a_malformed_line_in_the_middle_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    settings, artifacts = legacy_run(tmp_path)
    artifacts.rollouts.write_bytes(b"{broken\n" + artifacts.rollouts.read_bytes())
    before = artifacts.rollouts.read_bytes()

    with pytest.raises(CorruptArtifactError, match=r"rollouts\.jsonl:1: not a result row"):
        fill(settings.model_copy(update={"allow_unsafe_resume": True}))

    assert (artifacts.rollouts.read_bytes(), artifacts.manifest.exists()) == (before, False)


def test_another_experiment_is_accepted_when_asked_for_and_marked(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    fill(settings_for(tmp_path, policy_model_name="a"))

    result = fill(settings_for(tmp_path, policy_model_name="b", allow_unsafe_resume=True))

    assert sum(asked(tmp_path).values()) == 1
    assert not result.coverage.identity_verified
