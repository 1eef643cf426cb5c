"""A run graded anew into a run of its own: every saved answer, another verifier, and nobody asked for an answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.coverage import Coverage
from collector.durable.names import temporary_name
from collector.errors import (
    ConfigError,
    CorruptArtifactError,
    DatasetError,
    IdentityError,
    LockHeldError,
    NotFoundError,
    RefusedError,
)
from collector.lock import ShardLock
from collector.manifest import read_manifest
from collector.outcomes import Failure
from collector.reverify.output import prepare_output
from collector.reverify.settings import ReverifySettings
from collector.settings import RetrySettings
from collector.stop import StopReason
from merge.command import merge_paths
from orchestrate.regrading import append_here, find_source
from tests.collector.regrading import Quiet, append, by_id, regrade
from tests.collector.shards import rows_of
from tests.merge.build import Plan, answered, failed, fill_all, plan, prepare_only

NUMBER = {"verifier": {"type": "regex", "pattern": "four"}}


def two_shards(directory: Path, **settings: Any) -> Plan:
    """Task 0 says four and was graded 0, 1 has another answer, 2 was cut before it said anything, 3 has no answer."""
    made = plan(directory / "bench", shards=2, tasks=4, **settings)
    cut = {"id": "c", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    found = {
        0: answered(0.0), 1: answered(1.0, text="five"), 2: answered(None, masked=True, response=cut), 3: failed(),
    }  # fmt: skip
    fill_all(made, lambda task, _: found[task])
    return made


def files_in(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.name.endswith(".lock")}


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
    assert warned == ["1 rollouts of the merged run have no row and are not counted: name its directory to keep them"]


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

    with pytest.raises(RefusedError, match="1 of 2 shards are missing"):
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


class TestTheOutput:
    def test_what_is_there_is_refused_replaced_or_gone_on_with(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        regrade(made.directory, output, **NUMBER)
        first = read_manifest(RunArtifacts(output).manifest)
        before = files_in(tmp_path)

        with pytest.raises(RefusedError, match=r"Use --resume to go on with it, --overwrite to replace it"):
            regrade(made.directory, output, **NUMBER)
        assert files_in(tmp_path) == before
        regrade(made.directory, output, resume=True, **NUMBER)
        assert read_manifest(RunArtifacts(output).manifest) == first
        regrade(made.directory, output, overwrite=True, verifier={"type": "regex", "pattern": "five"})
        assert {name: row.get("reward") for name, row in by_id(output).items()} == {"0-0": 0.0, "1-0": 1.0, "2-0": None}

    @pytest.mark.parametrize("flags", [{}, {"overwrite": True}, {"resume": True}], ids=["plain", "overwrite", "resume"])
    def test_a_run_that_was_collected_is_never_replaced(self, tmp_path: Path, flags: dict[str, bool]) -> None:
        made, other = two_shards(tmp_path), two_shards(tmp_path / "other")
        before = files_in(tmp_path)

        with pytest.raises(RefusedError, match="a run that was collected"):
            regrade(made.directory, other.shards[0].rollouts, **NUMBER, **flags)
        with pytest.raises(RefusedError, match="would replace files of the run that is graded"):
            regrade(made.directory, made.shards[0].rollouts, **NUMBER, **flags)
        assert files_in(tmp_path) == before

    def test_files_without_a_manifest_are_not_gone_on_with(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        output.write_text('{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1}\n')

        with pytest.raises(RefusedError, match="no manifest"):
            regrade(made.directory, output, resume=True, **NUMBER)
        assert len(rows_of(output)) == 1
        regrade(made.directory, output, overwrite=True, **NUMBER)
        assert len(rows_of(output)) == 3

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            pytest.param({"verifier": {"type": "regex", "pattern": "five"}}, "verifier.pattern", id="verifier"),
            pytest.param({"limit": 2, **NUMBER}, "reverify.limit", id="limit"),
        ],
    )
    def test_another_regrading_does_not_go_on_with_it(self, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
        made = two_shards(tmp_path)
        regrade(made.directory, tmp_path / "new.jsonl", **NUMBER)

        with pytest.raises(IdentityError, match=words):
            regrade(made.directory, tmp_path / "new.jsonl", resume=True, **changes)

    @pytest.mark.parametrize("cut", [1, 30, 10_000])
    def test_an_inventory_that_lost_its_end_is_made_again_from_the_source(self, tmp_path: Path, cut: int) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        regrade(made.directory, output, **NUMBER)
        before, inventory = files_in(tmp_path), RunArtifacts(output).inventory
        inventory.write_bytes(inventory.read_bytes()[:-cut])

        regrade(made.directory, output, resume=True, **NUMBER)

        after = files_in(tmp_path)
        assert (after[inventory], after[output]) == (before[inventory], before[output])

    def test_an_inventory_of_other_words_is_refused(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        regrade(made.directory, output, **NUMBER)
        inventory = RunArtifacts(output).inventory
        inventory.write_bytes(inventory.read_bytes().replace(b"2+2?", b"2+3?"))

        with pytest.raises(CorruptArtifactError, match="not the inventory"):
            regrade(made.directory, output, resume=True, **NUMBER)

    def test_a_source_that_went_on_since_is_another_source(self, tmp_path: Path) -> None:
        made = plan(tmp_path / "bench", shards=1, tasks=2)
        fill_all(made, lambda task, _: failed(terminal=False) if task else answered(0.0))
        source = made.shards[0].rollouts
        regrade(source, tmp_path / "new.jsonl", **NUMBER)
        fill_all(made, lambda task, _: answered(1.0) if task else [])

        with pytest.raises(IdentityError, match=r"reverify\.source_digest"):
            regrade(source, tmp_path / "new.jsonl", resume=True, **NUMBER)


@pytest.mark.parametrize("has_manifest", [True, False], ids=["a-run", "files-without-a-manifest"])
def test_what_was_collected_since_the_output_was_looked_at_is_not_replaced(tmp_path: Path, has_manifest: bool) -> None:
    made = two_shards(tmp_path)
    target = made.shards[0]
    manifest = read_manifest(target.manifest)
    assert manifest is not None
    if not has_manifest:
        target.manifest.unlink()
    before = files_in(tmp_path)

    with pytest.raises(RefusedError):
        prepare_output(target, lambda: iter([b"{}\n"]), manifest, overwrites=has_manifest, fence=lambda: None)

    assert files_in(tmp_path) == before


class TestAppending:
    def test_another_verifier_than_the_runs_is_refused(self, tmp_path: Path) -> None:
        made = plan(tmp_path / "bench", shards=1, tasks=1, config={"verifier": {"type": "regex", "pattern": "five"}})
        judge = Failure(failure_class="judge_failed", reason="down", response=answered().answer.response)
        fill_all(made, lambda _task, _repeat: judge)
        before = files_in(tmp_path)

        with pytest.raises(IdentityError, match=r"graded by another verifier .*pattern"):
            append(_settings(made), **NUMBER)

        assert files_in(tmp_path) == before

    def test_files_without_a_journal_cannot_be_appended_to(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        made.shards[0].manifest.unlink()

        with pytest.raises(NotFoundError):
            append(_settings(made), **NUMBER)

    def test_a_shard_that_is_not_begun_has_nothing_to_judge(self, tmp_path: Path) -> None:
        made = plan(tmp_path / "bench", shards=1, tasks=1)
        prepare_only(made, 0)

        result, warned = append(_settings(made), **NUMBER)

        assert (result, warned) == (None, ["not graded again, it was never tried: 0-0"])

    def test_what_metrics_are_just_published_into_is_left_alone(self, tmp_path: Path) -> None:
        """They are published under a lock of their own."""
        made = plan(tmp_path / "bench", shards=1, tasks=1)
        prepare_only(made, 0)
        live = temporary_name(made.shards[0].aggregate)
        live.touch()

        append(_settings(made), **NUMBER)

        assert live.exists()

    def test_ctrl_c_between_shards_without_anything_to_judge_is_heeded(self, tmp_path: Path) -> None:
        made = plan(tmp_path / "bench", shards=2, tasks=2)
        for index in range(2):
            prepare_only(made, index)
        wanted = ReverifySettings.model_validate(
            {"rollouts_jsonl_fpath": tmp_path / "bench", "judge_failed_only": True, "append": True, **NUMBER}
        )

        def interrupted() -> Quiet:
            os.kill(os.getpid(), signal.SIGINT)
            return Quiet()

        async def run() -> tuple[Coverage, StopReason | None]:
            return await append_here(wanted, find_source(wanted), warn=print, begun=interrupted)

        coverage, reason = asyncio.run(run())

        assert (coverage.expected, reason) == (2, StopReason.INTERRUPTED)


def _settings(made: Plan) -> Any:
    class Named:
        output_jsonl_fpath = made.shards[0].rollouts

    return Named()


def test_two_runs_are_not_one(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    copied = tmp_path / "copy.jsonl"
    copied.write_bytes(made.shards[0].rollouts.read_bytes() * 2)

    with pytest.raises(CorruptArtifactError, match="has two results"):
        regrade(copied, tmp_path / "new.jsonl", **NUMBER)
