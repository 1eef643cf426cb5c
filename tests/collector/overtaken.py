"""A program: stop a collector before every disk call it makes, let another take the shard, let the first go on, and count.

Forks before any thread exists, as ``sweep`` does. Ways: ``after`` (the successor runs to its end meanwhile), ``within`` (it is
stopped itself, at each of its first calls, while the first goes on) and ``thrice`` (a third one overtakes both).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from collector.artifacts import RunArtifacts
from collector.errors import FencedError, LockHeldError
from collector.lock import is_held
from collector.settings import RunSettings
from collector.store import RolloutStore
from tests.collector.shards import asked, fill, rollout_ids, rows_of, settings_for, states, write_dataset
from tests.collector.sweep import recorded
from tests.support import testkit
from tests.support.crash import DiskCalls

_TASKS = [{"n": 0, "grade": 1}, {"n": 1, "grade": 0}, {"n": 2, "grade": 1, "fail": 1}]
_FENCED, _HELD, _BROKEN = 3, 4, 5


class Stopped(NamedTuple):
    """A collector that stands before a disk call; it ended by itself when ``status`` is not None."""

    pid: int
    status: int | None
    had_lock: bool
    #: As it was when the collector was stopped.
    journal: bytes


def begin(settings: RunSettings, stop_at: int) -> Stopped:
    """Start a collector in a fork and return when it was stopped or has ended."""
    child = os.fork()
    if child == 0:
        status = _BROKEN
        try:
            DiskCalls(stop_at, sent=signal.SIGSTOP).install()
            fill(settings)
            status = 0
        except FencedError:
            status = _FENCED
        except LockHeldError:
            status = _HELD
        except BaseException:  # noqa: BLE001 - a fork must not return
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitpid(child, os.WUNTRACED)[1]
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    return Stopped(
        child,
        None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status),
        is_held(artifacts.lock),
        artifacts.journal.read_bytes() if artifacts.journal.exists() else b"",
    )


def go_on(stopped: Stopped) -> int:
    """Its exit status, after it was continued."""
    if stopped.status is not None:
        return stopped.status
    os.kill(stopped.pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(stopped.pid, 0)[1])


def endings(stopped: Stopped) -> set[int]:
    """How it may end after another collector had the shard."""
    if not stopped.had_lock:
        # It takes the lock now, and finds the shard whole; or finds it held.
        return {0, _HELD}
    # One that had written its end has nothing more to record.
    return {0, _FENCED} if b'"session_ended"' in stopped.journal else {_FENCED}


class Shard:
    """One run directory, and what was wrong with it."""

    def __init__(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        write_dataset(directory / "tasks.jsonl", _TASKS)
        self.directory = directory
        self.settings = settings_for(directory, num_samples_in_parallel=2, retry={"max_attempts": 6})
        self.artifacts = RunArtifacts(self.settings.output_jsonl_fpath)
        self.wrong: Counter[str] = Counter()

    def rob(self) -> None:
        """Remove the lock file under its owner."""
        self.artifacts.lock.unlink(missing_ok=True)

    def content(self) -> dict[str, bytes]:
        """What the files hold; the note in the lock is for people, and a temporary file is nobody's."""
        files = self.artifacts.rollouts.parent.iterdir() if self.artifacts.rollouts.parent.exists() else []
        return {path.name: path.read_bytes() for path in files if path != self.artifacts.lock and path.suffix != ".tmp"}

    def expect(self, what: str, *, right: bool) -> None:
        self.wrong[what] += not right

    def judge(self, before: dict[str, str], calls: Counter[str], asked_by: Counter[str] | None = None) -> None:
        """Whether the shard is whole, and what had been recorded by ``before`` stands and was not asked again.

        ``asked_by``: what had been asked when the last collector that has the shard ended. One that is continued after that
        may send what it had dispatched before it was stopped.
        """
        calls_now = asked(self.directory) if asked_by is None else asked_by
        after, found = recorded(self.settings), rollout_ids(self.artifacts.rollouts)
        self.expect("lost", right=all(after.get(rollout) == row for rollout, row in before.items()))
        self.expect("asked again", right=all(calls_now[rollout] == calls[rollout] for rollout in before))
        dispatched = Counter(event["rollout_id"] for event in rows_of(self.artifacts.journal) if event["event"] == "dispatched")
        self.expect("asked without a dispatch", right=not asked(self.directory) - dispatched)
        self.expect("doubled", right=len(found) == len(set(found)))
        self.expect("not whole", right=states(self.settings) == {"measured": len(_TASKS)})
        with RolloutStore.read(self.artifacts) as store:
            self.expect("late", right=store.history.late_events == store.repairs.ignored_rows == 0)
            self.expect("unrepaired", right=not (store.repairs.lines or store.repairs.recovered or store.repairs.cuts))


def after(directory: Path, first: int) -> tuple[bool, Counter[str]]:
    """The successor runs from beginning to end while the first one stands before call ``first``."""
    shard = Shard(directory)
    stopped = begin(shard.settings, first)
    if stopped.status is not None:
        return False, shard.wrong
    before, calls = recorded(shard.settings), asked(directory)
    shard.rob()
    shard.expect("successor failed", right=go_on(begin(shard.settings, 0)) == 0)
    content = shard.content()
    status = go_on(stopped)
    shard.expect("not fenced", right=status in endings(stopped))
    shard.expect("written late", right=shard.content() == content or not stopped.had_lock)
    shard.judge(before, calls)
    return True, +shard.wrong


def within(directory: Path, first: int, second: int) -> tuple[bool, Counter[str]]:
    """The first one, stopped before call ``first``, goes on while its successor stands before call ``second``."""
    shard = Shard(directory)
    stopped = begin(shard.settings, first)
    before, calls = recorded(shard.settings), asked(directory)
    shard.rob()
    successor = begin(shard.settings, second)
    shard.expect("not fenced", right=go_on(stopped) in endings(stopped))
    shard.expect("successor failed", right=go_on(successor) == 0)
    shard.judge(before, calls)
    return successor.status is None, +shard.wrong


def thrice(directory: Path, first: int, second: int) -> tuple[bool, Counter[str]]:
    """A third one runs to its end while two stand before some call, the second having overtaken the first."""
    shard = Shard(directory)
    stopped = begin(shard.settings, first)
    shard.rob()
    successor = begin(shard.settings, second)
    before, calls = recorded(shard.settings), asked(directory)
    shard.rob()
    shard.expect("third failed", right=go_on(begin(shard.settings, 0)) == 0)
    content, asked_by = shard.content(), asked(directory)
    for one in (successor, stopped):
        shard.expect("not fenced", right=go_on(one) in endings(one))
    shard.expect("written late", right=shard.content() == content or not successor.had_lock)
    shard.judge(before, calls, asked_by)
    return successor.status is None, +shard.wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("way", choices=["after", "within", "thrice"])
    parser.add_argument("--first", type=int, nargs="*", default=[], help="calls before which the first collector is stopped")
    parser.add_argument("--step", type=int, default=1)
    args = parser.parse_args()
    testkit.install()
    points, wrong = 0, Counter[str]()
    for first in args.first if args.way != "after" else [0]:
        call = 1
        while True:
            point = args.directory / "point"
            if args.way == "after":
                is_reached, found = after(point, call)
            else:
                is_reached, found = (within if args.way == "within" else thrice)(point, first, call)
            if found:
                print(f"{args.way}: first at {first}, call {call}: {dict(found)}", file=sys.stderr)
            wrong += found
            if not is_reached:
                break
            points += 1
            call += args.step
    print(json.dumps({"points": points, "wrong": dict(wrong)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
