"""A judge's second try recorded into the run itself: what is refused, what is left alone, and when it ends early."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from collector.coverage import Coverage
from collector.durable.names import temporary_name
from collector.errors import (
    IdentityError,
    NotFoundError,
)
from collector.outcomes import Failure
from collector.reverify.settings import ReverifySettings
from collector.stop import StopReason
from orchestrate.regrading import append_here, find_source
from tests.collector.regrading import NUMBER, Quiet, append, files_in, two_shards
from tests.merge.build import Plan, answered, fill_all, plan, prepare_only


def _settings(made: Plan) -> Any:
    class Named:
        output_jsonl_fpath = made.shards[0].rollouts

    return Named()


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
    made = plan(
        tmp_path / "bench",
        shards=1,
        tasks=2,
        config={"verifier": {**NUMBER["verifier"], "full_match": False, "ignore_case": False}},
    )
    judge = Failure(failure_class="judge_failed", reason="down", response=answered().answer.response)
    fill_all(made, lambda task, _repeat: answered(0.0) if task else judge)
    opened: list[str] = []
    really = io.open

    def opens(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if file == made.shards[0].journal and mode == "rb":
            opened.append(threading.current_thread().name)
        return really(file, mode, *args, **kwargs)

    monkeypatch.setattr(io, "open", opens)
    judged, _ = append(_settings(made), **NUMBER)

    assert (judged.has_begun, judged.coverage.measured) == (True, 2)
    assert len(opened) == 1
    assert threading.main_thread().name not in opened
