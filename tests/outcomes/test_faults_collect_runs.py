"""Faults of runs, as people met them: signals, two runs of one task, lost locks, resumes of something else, used-up budgets."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.errors import IdentityError, LockHeldError
from collector.lock import ShardLock, is_held
from tests.outcomes.bench import Bench, environment
from tests.support import testkit
from tests.support.model_server import ModelServer
from tests.support.requirements import require


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


@pytest.mark.parametrize("error", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_d9_a_file_system_without_locks_is_refused_and_never_downgraded_in_silence(bench: Bench, error: str) -> None:
    """flock fails: exit 5 with the reason before the first write. Where it works, every session says how its lock was held."""
    require("injecting faults into system calls", [] if shutil.which("strace") else ["strace"])
    bench.tasks({})
    config = bench.write_config()
    trace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=flock", "-e", f"inject=flock:error={error}"]

    refused = subprocess.run(
        [*trace, *bench.command(config)], env=environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=False
    )

    assert refused.returncode == 5
    assert "this file system does not lock files" in refused.stderr
    assert (bench.asked(), bench.artifacts.manifest.exists()) == ({}, False)
    bench.fill()
    assert [event["lock"] for event in bench.events("session_started")] == ["flock"]


@pytest.mark.parametrize("harm", ["lock-deleted", "lock-replaced", "directory-moved-and-remade"])
def test_d11_a_collector_whose_lock_was_taken_away_stops_and_its_successor_doubles_nothing(bench: Bench, harm: str) -> None:
    """Somebody cleans up the lock file, or the whole directory, of a live run and starts it again: exit 4, and one row a task."""
    bench.tasks(*[{}] * 8)
    bench.base |= {"agent": {"type": "acted", "delay_s": 0.5}, "retry": {"max_attempts": 9}}
    first = bench.start()
    bench.wait_for_rows(2)
    run = bench.artifacts.rollouts.parent
    if harm == "directory-moved-and-remade":
        run.rename(run.with_name("moved"))
        run.mkdir()
    else:
        bench.artifacts.lock.unlink()
    if harm == "lock-replaced":
        bench.artifacts.lock.touch()

    second = bench.run(num_samples_in_parallel=8)
    _, said = first.communicate(timeout=30)

    assert (first.returncode, second.returncode) == (4, 0), said
    assert "It stops without writing" in said
    assert sorted(row["n"] for row in bench.rows()) == list(range(8))
    assert bench.fill().coverage.measured == 8


_FORKED = """
import os, sys, time
from pathlib import Path
from collector.errors import FencedError
from collector.lock import ShardLock
with ShardLock(Path(sys.argv[1])) as lock:
    if os.fork() == 0:
        Path(sys.argv[2]).write_text(str(os.getpid()))
        deadline = time.monotonic() + 30
        while not Path(sys.argv[2] + ".go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            lock.check()
            said = "may write"
        except FencedError:
            said = "fenced"
        Path(sys.argv[2] + ".said").write_text(said)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_d12_a_forked_child_holds_nothing_and_may_write_nothing(tmp_path: Path) -> None:
    """The collector is killed while a worker it forked lives on: the lock is free at once, and the worker cannot write."""
    path, pid_file = tmp_path / "x.lock", tmp_path / "child"
    parent = subprocess.Popen(
        [sys.executable, "-c", _FORKED, str(path), str(pid_file)],
        env=environment(),
        cwd=testkit.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    held = is_held(path)

    parent.kill()
    parent.wait()
    # Not communicate(): the child has the other end of the pipe too.
    parent.stdout.close()
    with ShardLock(path) as lock:
        pid_file.with_name("child.go").touch()
        wait_for_file(pid_file.with_name("child.said"))
        lock.check()

    assert held
    assert pid_file.with_name("child.said").read_text() == "fenced"


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_d12_opening_a_shard_twice_in_one_process_fails_at_once(tmp_path: Path) -> None:
    """Two lock objects for one file must not wait for each other."""
    begun = time.monotonic()

    with ShardLock(tmp_path / "x.lock"), pytest.raises(LockHeldError), ShardLock(tmp_path / "x.lock"):
        pass

    assert time.monotonic() - begun < 2


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


GRADER = "def grade(row, text, response):\n    return {}\n"
SAME: dict[str, Any] = {
    "policy_model_name": "org/model@rev1",
    "responses_create_params": {"temperature": 0.5, "metadata": {"api_base": "a"}},
    "prompt_config": {"user": "{n}?", "system": "Be brief."},
    "verifier": {"type": "python", "function": "a_users_grader:grade", "kwargs": {}},
    "num_repeats": 2,
    "limit": 2,
}


@pytest.fixture
def graded(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A finished run with a system prompt, two repeats, a limit and a grader of the user's own."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_users_grader.py").write_text(GRADER.format("1.0"))
    lines = "".join(f'{{"n": {n}, "grade": 1}}\n' for n in range(3))
    (tmp_path / "tasks.jsonl").write_text(lines)
    bench.base |= {"agent": {"type": "acted"}, **SAME}
    bench.fill()
    yield bench
    sys.modules.pop("a_users_grader", None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"policy_model_name": "org/other@rev1"}, "policy_model_name", id="model"),
        pytest.param({"policy_model_name": "org/model@rev2"}, "policy_model_name", id="revision"),
        pytest.param({"responses_create_params": {"temperature": 0.6, "metadata": {"api_base": "a"}}}, "temperature", id="temperature"),
        pytest.param({"responses_create_params": {"temperature": 0.5, "metadata": {"api_base": "b"}}}, "api_base", id="nested-parameter"),
        pytest.param({"prompt_config": {"user": "{n}?", "system": "Be long."}}, "prompt_config.system", id="system-prompt"),
        pytest.param({"verifier": {**SAME["verifier"], "kwargs": {"strict": True}}}, "verifier.kwargs", id="grader-setting"),
        pytest.param({"verifier": {"type": "judged"}}, "verifier.type", id="grader"),
        pytest.param({"num_repeats": 3}, "num_repeats", id="repeats"),
        pytest.param({"limit": 1}, "limit", id="limit"),
        pytest.param({"num_repeats_add_seed": True}, "num_repeats_add_seed", id="seed"),
    ],
)  # fmt: skip
def test_d16_work_of_another_experiment_is_never_served(graded: Bench, change: dict[str, Any], named: str) -> None:
    """One thing that is measured differs: refused by its name, before a byte or a request."""
    before, calls = graded.contents(), graded.asked()

    with pytest.raises(IdentityError, match=named):
        graded.fill(**change)

    assert (graded.contents(), graded.asked()) == (before, calls)


@pytest.mark.parametrize("what", ["grader-code", "dataset-text"])
def test_d16_the_content_of_a_file_counts_and_not_its_name(graded: Bench, tmp_path: Path, what: str) -> None:
    """The grader's code or one row's text changed under the same name: refused."""
    if what == "grader-code":
        (tmp_path / "a_users_grader.py").write_text(GRADER.format("0.0"))
    else:
        path = tmp_path / "tasks.jsonl"
        path.write_text(path.read_text().replace('"n": 1', '"n": 7'))

    with pytest.raises(IdentityError, match=r"source_digest|the dataset's content"):
        graded.fill()

    assert sum(graded.asked().values()) == 4


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"policy_base_url": "http://127.0.0.1:9999/v1"}, id="port"),
        pytest.param({"policy_api_key": "sk-new"}, id="key"),
        pytest.param({"retry": {"max_attempts": 9, "max_interruptions": 2}}, id="retries"),
        pytest.param({"num_samples_in_parallel": 7, "timeouts": {"request_s": 1}}, id="speed"),
        pytest.param({"durability": "flush", "dispatch_longest_first": True, "dispatch_budget_s": 60}, id="when"),
    ],
)
def test_d16_how_and_where_it_was_measured_does_not_count(graded: Bench, change: dict[str, Any]) -> None:
    """The second group: port, token, retries and reporting switches differ, and the saved work is reused."""
    assert graded.fill(**change).coverage.measured == 4
    assert sum(graded.asked().values()) == 4


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


_AS_USER = """
import os, sys
from pathlib import Path
from tests.outcomes.bench import Bench, install
install()
Bench(Path(sys.argv[1])).fill()
os.setgroups([]); os.setgid(60001); os.setuid(60002 if sys.argv[3] == "second" else 60001); os.umask(int(sys.argv[4], 8))
from collector.errors import GymEvalError
try:
    Bench(Path(sys.argv[2])).fill(dispatch_budget_s=0 if sys.argv[3] == "first" else None)
except GymEvalError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that two users of one group may reach."""
    directory = Path(tempfile.mkdtemp(prefix="shared-"))
    directory.chmod(0o2775)
    os.chown(directory, -1, 60001)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("umask", ["0002", "0022"])
def test_d23_a_second_user_of_a_shared_run_is_let_in_or_told_which_file_keeps_them_out(
    shared: Path, tmp_path: Path, umask: str
) -> None:
    """The first user made the run: with a group-writable directory the second resumes it, otherwise one line names file and owner."""
    require("running as another user", [] if os.geteuid() == 0 else ["root"])
    mine = shared / "mine"
    mine.mkdir(mode=0o2775)
    for path in (mine, *[tmp_path / "warm"]):
        path.mkdir(exist_ok=True)
        Bench(path).tasks({"say": "one"}, {})
        (path / "tasks.jsonl").chmod(0o664)
    mine.chmod(0o2775)
    os.chown(mine, 60001, 60001)

    def as_user(which: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _AS_USER, str(tmp_path / "warm"), str(mine), which, umask]
        return subprocess.run(command, env=environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=False)

    first, second = as_user("first"), as_user("second")

    assert first.returncode == 0, first.stderr
    lock = mine / "run" / "rollouts.jsonl.lock"
    if umask == "0002":
        assert stat.S_IMODE(lock.stat().st_mode) & 0o060 == 0o060
        assert second.returncode == 0, second.stdout + second.stderr
        assert len((mine / "run" / "rollouts.jsonl").read_bytes().splitlines()) == 2
    else:
        assert second.returncode == 4, second.stderr
        assert str(lock) in second.stdout
        assert "60001" in second.stdout
        assert (mine / "run" / "rollouts.jsonl").read_bytes() == b""
