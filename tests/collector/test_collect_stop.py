"""Asked to stop: when, how often, and what is lost by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.durable.growing import AppendFile
from collector.stop import StopReason, StopRequest
from tests.collector.shards import asked, fill, settings_for, states, write_dataset


class StopAfter(StopRequest):
    """Asks itself: ``times`` requests to stop, the first ``after_s`` seconds after the loop began to listen."""

    def __init__(self, after_s: float, *, times: int = 1, margin_s: float = 30.0) -> None:
        super().__init__(margin_s=margin_s)
        self._after_s = after_s
        self._times = times

    async def at_once(self) -> None:
        for n in range(self._times):
            asyncio.get_running_loop().call_later(self._after_s + 0.05 * n, self.ask, StopReason.TERMINATED)
        await super().at_once()


def dataset(directory: Path, delay_s: float = 0.0, **more: object) -> None:
    write_dataset(directory / "tasks.jsonl", [{"n": n, "grade": 1, "delay_s": delay_s, **more} for n in range(8)])


def test_a_stop_before_the_first_dispatch_asks_nobody(tmp_path: Path) -> None:
    dataset(tmp_path)
    stop = StopRequest()
    stop.ask(StopReason.TERMINATED)

    result = fill(settings_for(tmp_path), stop=stop)

    assert not asked(tmp_path)
    assert result.stopped is StopReason.TERMINATED


def test_asked_once_what_is_in_flight_finishes_and_nothing_more_leaves(tmp_path: Path) -> None:
    dataset(tmp_path, 0.4)
    settings = settings_for(tmp_path, num_samples_in_parallel=2)

    fill(settings, stop=StopAfter(0.1))

    assert states(settings) == {"measured": 2, "never_dispatched": 6}


def test_an_agent_that_raises_when_told_of_a_stop_does_not_keep_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset(tmp_path, fail=1, status=None)
    plain = settings_for(tmp_path, retry={"backoff_s": 600, "backoff_max_s": 600})
    settings = plain.model_copy(update={"agent": {**plain.agent, "raises_at_stop": True}})

    fill(settings, stop=StopAfter(0.3))

    assert states(settings) == {"failed": 8}
    assert "the agent raised when it was told of the stop" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: StopAfter(0.1, times=2), id="asked-twice"),
        pytest.param(lambda: StopAfter(0.1, margin_s=0.0), id="no-margin"),
    ],
)
def test_asked_twice_or_without_margin_what_is_in_flight_is_given_up(tmp_path: Path, make: Callable[[], StopRequest]) -> None:
    dataset(tmp_path, 30.0)
    settings = settings_for(tmp_path, num_samples_in_parallel=2)
    begun = time.monotonic()

    fill(settings, stop=make())

    assert time.monotonic() - begun < 10
    assert states(settings) == {"unknown": 2, "never_dispatched": 6}


def test_a_stop_wakes_workers_that_wait_for_a_paused_retry(tmp_path: Path) -> None:
    dataset(tmp_path, fail=1, status=None)
    settings = settings_for(tmp_path, retry={"backoff_s": 600, "backoff_max_s": 600})
    begun = time.monotonic()

    fill(settings, stop=StopAfter(0.3))

    assert time.monotonic() - begun < 10
    assert states(settings) == {"failed": 8}


def test_a_collector_that_only_waits_for_a_pause_uses_no_processor(tmp_path: Path) -> None:
    dataset(tmp_path, fail=1, status=None)
    settings = settings_for(tmp_path, num_samples_in_parallel=8, retry={"backoff_s": 1.5, "backoff_max_s": 1.5})
    begun, used = time.monotonic(), time.process_time()

    fill(settings)

    assert time.monotonic() - begun > 1.5
    assert time.process_time() - used < 1.0
    assert states(settings) == {"measured": 8}


def test_a_budget_that_ends_while_retries_are_paused_leaves_them_for_the_next_session(tmp_path: Path) -> None:
    dataset(tmp_path, fail=1, status=None)
    settings = settings_for(tmp_path, dispatch_budget_s=0.3, drain_margin_s=0, retry={"backoff_s": 0.5, "backoff_max_s": 0.5})

    result = fill(settings)

    assert result.stopped is StopReason.DISPATCH_BUDGET
    assert states(settings) == {"failed": 8}
    assert set(asked(tmp_path).values()) == {1}


def test_what_a_stop_cut_off_with_its_server_is_an_interruption_and_no_failure(tmp_path: Path) -> None:
    # The server of a preempted job dies by the same signal: its connections may close before the collector hears of it.
    dataset(tmp_path, 0.1, drop=1)
    settings = settings_for(tmp_path, num_samples_in_parallel=4)

    fill(settings, stop=StopAfter(0.2))

    assert states(settings) == {"unknown": 4, "never_dispatched": 4}
    assert RunArtifacts(settings.output_jsonl_fpath).failures.read_bytes() == b""


def test_a_server_error_while_a_job_is_ended_is_an_interruption(tmp_path: Path) -> None:
    dataset(tmp_path, 0.3, fail=1, status=503)
    settings = settings_for(tmp_path, num_samples_in_parallel=4)

    fill(settings, stop=StopAfter(0.1))

    assert states(settings) == {"unknown": 4, "never_dispatched": 4}


def test_a_lost_connection_without_a_stop_is_a_failure_and_is_tried_again(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "drop": int(n == 3)} for n in range(8)])
    settings = settings_for(tmp_path, num_samples_in_parallel=4)

    fill(settings)

    assert states(settings) == {"measured": 8}
    assert asked(tmp_path)["3-0"] == 2


def test_what_is_recorded_while_the_session_is_given_up_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked twice while outcomes are made durable: those who waited for it are gone, and the outcomes are there."""
    dataset(tmp_path)
    really = AppendFile.sync

    def slowly(file: AppendFile) -> None:
        time.sleep(0.3)
        really(file)

    monkeypatch.setattr(AppendFile, "sync", slowly)
    settings = settings_for(tmp_path, num_samples_in_parallel=8)
    result = fill(settings, stop=StopAfter(0.45, times=2))

    assert result.coverage.measured == 8
    assert states(settings) == {"measured": 8}
