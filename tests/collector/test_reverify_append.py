"""A judge's second try recorded into the run itself: what is refused, what is left alone, and when it ends early."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.durable.names import temporary_name
from collector.errors import CorruptArtifactError, IdentityError, NotFoundError, RefusedError, StorageError
from collector.outcomes import Failure
from collector.preparation.prepare import make_verifier
from collector.reverify.run import verifier_identity
from collector.reverify.settings import ReverifySettings
from collector.state.coverage import Coverage
from collector.stop import StopReason
from merge.command import merge_paths
from orchestrate.regrading import append_here, find_source
from tests.collector.regrading import NUMBER, Quiet, append, by_id, files_in, two_shards
from tests.collector.shards import rows_of, settings_for
from tests.merge.build import Plan, answered, fill_all, plan, prepare_only


def _settings(made: Plan) -> Any:
    class Named:
        output_jsonl_fpath = made.shards[0].rollouts

    return Named()


#: What a run says of the verifier ``NUMBER`` when it was collected with it.
GRADED_BY_NUMBER = {"verifier": {**NUMBER["verifier"], "full_match": False, "ignore_case": False}}


def test_another_verifier_than_the_runs_is_refused(tmp_path: Path) -> None:
    made = plan(tmp_path / "bench", shards=1, tasks=1, config={"verifier": {"type": "regex", "pattern": "five"}})
    judge = Failure(failure_class="judge_failed", reason="down", response=answered().answer.response)
    fill_all(made, lambda _task, _repeat: judge)
    before = files_in(tmp_path)

    with pytest.raises(IdentityError, match=r"graded by another verifier .*pattern"):
        append(_settings(made), **NUMBER)

    assert files_in(tmp_path) == before


def test_files_without_a_journal_cannot_be_appended_to(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    made.shards[0].manifest.unlink()

    with pytest.raises(NotFoundError):
        append(_settings(made), **NUMBER)


def test_a_shard_that_is_not_begun_has_nothing_to_judge(tmp_path: Path) -> None:
    made = plan(tmp_path / "bench", shards=1, tasks=1)
    prepare_only(made, 0)

    result, warned = append(_settings(made), **NUMBER)

    assert (result.has_begun, warned) == (False, ["not graded again, it was never tried: 0-0"])


def test_what_metrics_are_just_published_into_is_left_alone(tmp_path: Path) -> None:
    """They are published under a lock of their own."""
    made = plan(tmp_path / "bench", shards=1, tasks=1)
    prepare_only(made, 0)
    live = temporary_name(made.shards[0].aggregate)
    live.touch()

    append(_settings(made), **NUMBER)

    assert live.exists()


def test_ctrl_c_between_shards_without_anything_to_judge_is_heeded(tmp_path: Path) -> None:
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


def test_a_shard_is_read_once_and_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes as long as the shard is large, and signals are heard by the loop."""
    made = plan(tmp_path / "bench", shards=1, tasks=2, config=GRADED_BY_NUMBER)
    judge = Failure(failure_class="judge_failed", reason="down", response=answered().answer.response)
    fill_all(made, lambda task, _repeat: answered(0.0) if task else judge)
    opened: list[str] = []
    really = os.open

    def opens(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == made.shards[0].journal and not flags & os.O_RDWR:
            opened.append(threading.current_thread().name)
        return really(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", opens)
    judged, _ = append(_settings(made), **NUMBER)

    assert (judged.has_begun, judged.coverage.measured) == (True, 2)
    assert len(opened) == 1
    assert threading.main_thread().name not in opened


def spoil(row: dict[str, Any], text: str, response: dict[str, Any], *, path: str, old: str, new: str) -> float:
    """A verifier under which a file changes as soon as the first answer is graded."""
    del row, text, response
    file = Path(path)
    file.write_bytes(file.read_bytes().replace(old.encode(), new.encode()))
    return 1.0


def test_an_answer_that_changed_since_it_was_chosen_is_not_given_up_in_the_run_itself(tmp_path: Path) -> None:
    """A failure without an answer would have been its latest outcome, and the saved answer lost for ever."""
    failures = plan(tmp_path / "bench", shards=1, tasks=2).shards[0].failures
    kwargs = {"path": str(failures), "old": '"text":"four"', "new": '"text":"soup"'}
    verifier = {"type": "python", "function": "tests.collector.test_reverify_append:spoil", "kwargs": kwargs}
    identity = verifier_identity(make_verifier(settings_for(tmp_path, verifier=verifier)))
    made = plan(tmp_path / "bench", shards=1, tasks=2, config={"verifier": identity})
    judge = Failure(failure_class="judge_failed", reason="down", response=answered().answer.response)
    fill_all(made, lambda _task, _repeat: judge)
    more = {"verifier": verifier, "retry": {"max_attempts": 5}}

    with pytest.raises(CorruptArtifactError, match=r"failures\.jsonl: the row at byte"):
        append(_settings(made), **more)

    assert sorted(by_id(made.shards[0].rollouts)) == ["0-0"]
    assert [row["_ng_failure_class"] for row in rows_of(failures)] == ["judge_failed"] * 2
    failures.write_bytes(failures.read_bytes().replace(b'"text":"soup"', b'"text":"four"'))
    judged, _ = append(_settings(made), **more)
    assert (judged.coverage.measured, sorted(by_id(made.shards[0].rollouts))) == (2, ["0-0", "1-0"])


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageError), (errno.EACCES, RefusedError)], ids=["disk", "owner"])
def test_an_answer_that_cannot_be_read_ends_the_command_and_costs_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    made = plan(tmp_path / "bench", shards=1, tasks=2, config=GRADED_BY_NUMBER)
    judge = Failure(failure_class="judge_failed", reason="down", response=answered().answer.response)
    fill_all(made, lambda _task, _repeat: judge)
    really = os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        is_failures = Path(f"/proc/self/fd/{descriptor}").readlink() == made.shards[0].failures
        # The session's own descriptor writes as well.
        is_answer = is_failures and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR
        if is_answer and threading.current_thread() is threading.main_thread():
            raise OSError(number, os.strerror(number))
        return really(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(kind, match=rf"failures\.jsonl: it cannot be read: {os.strerror(number)}"):
        append(_settings(made), **NUMBER)
    monkeypatch.undo()

    assert [row["_ng_failure_class"] for row in rows_of(made.shards[0].failures)] == ["judge_failed"] * 2
    judged, _ = append(_settings(made), retry={"max_attempts": 5}, **NUMBER)
    assert judged.coverage.measured == 2


def test_an_answer_that_is_judged_twice_was_paid_for_once(tmp_path: Path) -> None:
    """In the run itself the saved answer stands in the row of the failed judgement and in the result's."""
    made = plan(tmp_path / "bench", shards=1, tasks=2, config=GRADED_BY_NUMBER)
    answer = answered(usage={"input_tokens": 40, "output_tokens": 5, "total_tokens": 45}).answer.response
    judge = Failure(failure_class="judge_failed", reason="down", response=answer)
    fill_all(made, lambda task, _repeat: answered(0.0) if task else judge)
    append(_settings(made), **NUMBER)

    report = merge_paths([made.directory], tmp_path / "out.jsonl")

    entry = orjson.loads(report.target.with_name("out_aggregate_metrics.json").read_bytes())[0]
    performance = entry["perf_summary"]
    assert performance["selected/input_tokens/total"] == performance["attempts/input_tokens/total"] == 45
    assert performance["attempts/total_tokens/total"] == 52
    assert performance["attempts/elapsed_s/count"] == 3
