"""Faults of runs, as people met them: signals, two runs of one task, kills, used-up budgets."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from collector.shard.lock import is_held
from tests.outcomes.bench import Bench
from tests.support.model_server import ModelServer


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a8_a_signal_ends_dispatching_and_keeps_what_was_in_flight(bench: Bench, sent: signal.Signals) -> None:
    """TERM while two of ten are in flight: both answers are recorded, nothing more is asked, the lock is free, exit 6."""
    bench.tasks(*[{}] * 10)
    bench.base["agent"] = {"type": "acted", "delay_s": 1.5}
    process = bench.start(num_samples_in_parallel=2)
    bench.wait_for_calls(2)

    process.send_signal(sent)
    _, said = process.communicate(timeout=20)

    assert (process.returncode, len(bench.rows()), len(bench.asked())) == (6, 2, 2), said
    assert bench.events()[-1]["event"] == "session_ended"
    assert not is_held(bench.artifacts.lock)
    assert bench.fill(num_samples_in_parallel=10).coverage.attempts == 10


def test_a8_a_second_signal_does_not_wait_for_an_answer_that_never_comes(bench: Bench) -> None:
    """The only request hangs for an hour: TERM twice ends the collector at once, and the attempt counts as interrupted."""
    bench.tasks({"acts": ["hang"]})
    process = bench.start()
    bench.wait_for_calls(1)
    begun = time.monotonic()

    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)

    assert time.monotonic() - begun < 10
    assert bench.states() == {"unknown": 1}
    assert bench.fill().coverage.measured == 1


def test_a8_correctness_needs_no_signal_at_all(bench: Bench) -> None:
    """SIGKILL with requests in flight, three times: whatever was recorded stays, and the fourth session completes the rest."""
    bench.tasks(*[{}] * 12)
    bench.base |= {"agent": {"type": "acted", "delay_s": 0.05}, "num_samples_in_parallel": 2, "retry": {"max_attempts": 9}}
    kept: list[bytes] = []
    for number in (2, 5, 8):
        process = bench.start()
        bench.wait_for_rows(number)
        process.kill()
        process.communicate()
        kept.append(bench.artifacts.rollouts.read_bytes())

    coverage = bench.fill().coverage

    assert all(bench.artifacts.rollouts.read_bytes().startswith(part[: part.rfind(b"\n") + 1]) for part in kept)
    assert (coverage.measured, len({row["n"] for row in bench.rows()}), len(bench.rows())) == (12, 12, 12)


def test_a12_two_runs_of_one_task_share_nothing(bench: Bench) -> None:
    """A requeued job and a resubmitted one start on the same output: one of them exits 4 and names the other, without a write."""
    bench.tasks(*[{}] * 5, {"acts": ["hang"]})
    first = bench.start()
    bench.wait_for_calls(6)
    before, calls = bench.contents(), bench.asked()

    second = bench.run()
    still_runs = first.poll() is None
    first.kill()
    first.communicate()

    assert (still_runs, second.returncode) == (True, 4)
    assert f"the shard is owned by process {first.pid} on " in second.stderr
    assert (bench.contents(), bench.asked()) == (before, calls)
    assert {event["session"] for event in bench.events()} == {0}


@pytest.mark.parametrize("answered", [0, 1, 5])
def test_d15_d18_a_killed_run_is_unfinished_whatever_its_reports_say(bench: Bench, tmp_path: Path, answered: int) -> None:
    """kill -9 with 0, 1 or 5 of 10 answered, a log and even a report that claims success beside it: exactly the rest is asked."""
    pid_file = tmp_path / "pid"
    with ModelServer(tmp_path, kill_pid_at=answered + 1, kill_pid_file=pid_file, delay=0.1) as server:
        bench.ask(server, *["x"] * 10)
        process = bench.start()
        pid_file.write_text(str(process.pid))
        process.communicate(timeout=40)
        bench.artifacts.coverage.write_text('{"complete": true, "final": true}')
        (bench.artifacts.rollouts.parent / "driver-1.log").write_text("10 of 10 done\n")
        kept = len(bench.rows())

        resumed = bench.run()

        assert (process.returncode, kept, resumed.returncode) == (-9, answered, 0)
        counts = server.counts()
        assert [counts[str(n)] for n in range(10)] == [1] * answered + [2] + [1] * (9 - answered)
        assert "1 (10/10)" in resumed.stdout


def test_d19_a_task_that_was_preempted_three_times_is_told_apart_and_revived_by_one_setting(bench: Bench) -> None:
    """Killed three times with the task in flight: exhausted by interruption, visible, and ``max_interruptions`` brings it back."""
    bench.tasks({"acts": ["die"] * 3}, {})
    codes = [bench.run().returncode for _ in range(3)]

    shared = bench.fill().coverage
    calls = bench.asked()
    apart = bench.fill(retry={"max_interruptions": 5}).coverage

    assert codes == [-9] * 3
    assert (shared.states["exhausted"], shared.exhausted_by_interruption, shared.measured) == (1, 1, 1)
    assert calls == {"0-0": 3, "1-0": 1}
    assert (apart.measured, apart.exhausted_by_interruption) == (2, 0)


def test_d19_a_task_that_always_kills_its_collector_still_stops_and_is_named(bench: Bench) -> None:
    """With an allowance of two interruptions: three deaths, then the rest of the run is done and the suspect is in the report."""
    bench.tasks({"acts": ["die"] * 50}, {}, {})
    allowance = {"max_interruptions": 2}
    codes = [bench.run(retry=allowance).returncode for _ in range(3)]

    coverage = bench.fill(retry=allowance).coverage

    assert codes == [-9] * 3
    assert (bench.asked()["0-0"], coverage.measured, coverage.suspects, coverage.is_final) == (3, 2, ["0-0"], True)


def test_d19_a_task_that_was_queued_and_never_sent_has_used_nothing(bench: Bench) -> None:
    """The first task kills its collector three times with four more queued behind it: those have all their attempts left."""
    bench.tasks({"acts": ["die"] * 3}, *[{"acts": [{}, {}]}] * 4)
    for _ in range(3):
        bench.run()

    coverage = bench.fill().coverage

    assert (coverage.measured, coverage.states["exhausted"]) == (4, 1)
    assert bench.asked() == {f"{n}-0": 3 for n in range(5)}
