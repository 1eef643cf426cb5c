"""A run graded anew into a run of its own: every saved answer, another verifier, and nobody asked for an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import (
    ConfigError,
    CorruptArtifactError,
    DatasetError,
    LockHeldError,
    RefusedError,
)
from collector.formats.manifest import read_manifest
from collector.settings import RetrySettings
from collector.shard.lock import ShardLock
from merge.command import merge_paths
from tests.collector.regrading import NUMBER, by_id, files_in, regrade, two_shards
from tests.merge.build import answered, fill_all, plan


def new_states(output: Path) -> dict[str, int]:
    coverage = json.loads(RunArtifacts(output).coverage.read_bytes())
    return {state: count for state, count in coverage["states"].items() if count}


def test_every_saved_answer_is_graded_and_a_rollout_without_one_stays_in_the_coverage(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    before = files_in(made.directory)
    output = tmp_path / "new" / "regraded.jsonl"

    result, warned = regrade(made.directory, output, **NUMBER)

    found = by_id(output)
    assert {name: row.get("reward") for name, row in found.items()} == {"0-0": 1.0, "1-0": 0.0, "2-0": None}
    assert found["0-0"]["reverified"] == {"run_id": made.run_id, "attempt": 0, "reward": 0.0}
    assert new_states(output) == {"measured": 2, "masked": 1, "failed": 1}
    assert (result.coverage.expected, result.coverage.is_final) == (4, True)
    assert warned == [
        "not graded again, its latest recorded outcome is agent_request_failed, which left no answer to judge: 3-0"
    ]
    assert files_in(made.directory) == before


def test_the_manifest_names_the_source_its_digest_and_the_new_verifier(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    output = tmp_path / "regraded.jsonl"

    regrade(made.directory, output, **NUMBER)

    manifest = read_manifest(RunArtifacts(output).manifest)
    assert manifest is not None
    assert manifest.config["verifier"]["pattern"] == "four"
    assert manifest.config["policy_model_name"] == "m"
    assert manifest.config["reverify"]["source_run_ids"] == [made.run_id]
    assert len(manifest.config["reverify"]["source_digest"]) == 64
    assert (manifest.source_digest, manifest.inventory_digest) == ("5" * 64, made.manifest(0).shard.whole_digest)  # type: ignore[union-attr]
    assert not manifest.legacy_import


def test_a_merged_file_is_graded_by_its_shards_while_they_are_there(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    merge_paths([made.directory], made.merged.rollouts, retry=RetrySettings())

    regrade(made.merged.rollouts, tmp_path / "a.jsonl", **NUMBER)
    (made.directory / "shards").rename(tmp_path / "elsewhere")
    _, warned = regrade(made.merged.rollouts, tmp_path / "b.jsonl", **NUMBER)

    whole, alone = (read_manifest(RunArtifacts(tmp_path / name).manifest) for name in ("a.jsonl", "b.jsonl"))
    assert whole is not None
    assert alone is not None
    assert (whole.expected, alone.expected, alone.legacy_import) == (4, 3, False)
    assert {row: found["reward"] for row, found in by_id(tmp_path / "b.jsonl").items() if row != "2-0"} == {"0-0": 1, "1-0": 0}
    assert warned == ["1 rollout of the merged run has no row and is not counted: name its directory to keep them"]


def test_a_merged_file_that_was_edited_is_vouched_for_by_nothing(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    merge_paths([made.directory], made.merged.rollouts, retry=RetrySettings())
    (made.directory / "shards").rename(tmp_path / "elsewhere")
    made.merged.rollouts.write_bytes(made.merged.rollouts.read_bytes().replace(b'"five"', b'"four"'))

    result, _ = regrade(made.merged.rollouts, tmp_path / "new.jsonl", **NUMBER)

    assert not result.coverage.identity_verified


def test_a_verifier_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    judge = {"type": "judge", "base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": "NO_SUCH_KEY_OF_A_JUDGE"}

    with pytest.raises(ConfigError, match="NO_SUCH_KEY_OF_A_JUDGE is not set"):
        regrade(made.directory, tmp_path / "new.jsonl", verifier={**judge, "prompt": {"user": "{model_answer}"}})

    assert not list(tmp_path.glob("new*"))


def test_answers_without_a_score_get_one(tmp_path: Path) -> None:
    """A run that only executed is graded afterwards."""
    made = plan(tmp_path / "bench", shards=1, tasks=2)
    fill_all(made, lambda _task, _repeat: answered(None))

    result, _ = regrade(made.shards[0].rollouts, tmp_path / "new.jsonl", allow_partial=True, **NUMBER)

    assert (result.coverage.measured, result.coverage.mean) == (2, 1.0)


def test_only_so_many_answers_are_a_run_of_so_many(tmp_path: Path) -> None:
    made = two_shards(tmp_path)

    result, _ = regrade(made.directory, tmp_path / "new.jsonl", limit=1, **NUMBER)

    assert (result.coverage.expected, result.coverage.measured) == (1, 1)


def test_a_row_that_the_verifier_cannot_grade_is_named_before_anything_is_written(tmp_path: Path) -> None:
    made = two_shards(tmp_path)

    with pytest.raises(DatasetError, match=r"rollout 0-0: the row has no field 'expected_answer'"):
        regrade(made.directory, tmp_path / "new.jsonl", verifier={"type": "number"})

    assert not list(tmp_path.glob("new*"))


def test_without_a_verifier_the_run_has_to_say_who_graded_it(tmp_path: Path) -> None:
    made = two_shards(tmp_path)

    with pytest.raises(ConfigError, match="nothing says who grades"):
        regrade(made.directory, tmp_path / "new.jsonl")


def test_a_missing_shard_is_a_refusal_unless_it_is_accepted(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    made.shards[1].rollouts.parent.rename(tmp_path / "gone")

    with pytest.raises(RefusedError, match="1 of 2 shards is missing"):
        regrade(made.directory, tmp_path / "new.jsonl", **NUMBER)
    result, _ = regrade(made.directory, tmp_path / "new.jsonl", allow_partial=True, **NUMBER)

    assert result.coverage.expected == 2


def test_a_run_that_a_collector_fills_is_left_alone(tmp_path: Path) -> None:
    made = two_shards(tmp_path)

    with ShardLock(made.shards[0].lock), pytest.raises(LockHeldError, match="a collector fills the run"):
        regrade(made.directory, tmp_path / "new.jsonl", **NUMBER)


def test_a_damaged_row_fails_its_rollout_and_no_other(tmp_path: Path) -> None:
    """The journal knows the row's checksum: another row in its place is never graded."""
    made = two_shards(tmp_path)
    rollouts = made.shards[0].rollouts
    data = rollouts.read_bytes()
    rollouts.write_bytes(data.replace(b'"text":"four"', b'"text":"soup"'))

    regrade(made.directory, tmp_path / "new.jsonl", **NUMBER)

    assert by_id(RunArtifacts(tmp_path / "new.jsonl").failures)["0-0"]["failure_reason"].startswith(
        f"{rollouts}: the row at byte 0"
    )
    assert by_id(tmp_path / "new.jsonl")["1-0"]["reward"] == 0.0


def test_two_runs_are_not_one(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    copied = tmp_path / "copy.jsonl"
    copied.write_bytes(made.shards[0].rollouts.read_bytes() * 2)

    with pytest.raises(CorruptArtifactError, match="has two results"):
        regrade(copied, tmp_path / "new.jsonl", **NUMBER)
