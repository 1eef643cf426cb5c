"""A program: stop the owner of a shard before every disk call it makes, let another take the shard, let it go on, and count.

Forks before any thread exists, as ``sweep`` does. Ways: ``after`` (the successor runs to its end meanwhile), ``within`` (it is
stopped itself, at each of its first calls, while the first goes on) and ``thrice`` (a third one overtakes both).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import NamedTuple

from collector.errors import FencedError, RefusedError
from collector.shard.lock import is_held
from tests.collector.overtaken_cases import CASES, Case
from tests.collector.points import Sweep, Tried
from tests.support import testkit
from tests.support.crash import DiskCalls

_FENCED, _REFUSED, _BROKEN = 3, 4, 5


class Stopped(NamedTuple):
    """An owner that stands before a disk call; it ended by itself when ``status`` is not None."""

    pid: int
    status: int | None
    had_lock: bool
    #: As it was when the owner was stopped.
    journal: bytes


def begin(case: Case, stop_at: int) -> Stopped:
    """Start the work in a fork and return when it was stopped or has ended."""
    child = os.fork()
    if child == 0:
        status = _BROKEN
        try:
            DiskCalls(stop_at, sent=signal.SIGSTOP).install()
            case.work()
            status = 0
        except FencedError:
            status = _FENCED
        except RefusedError:
            status = _REFUSED
        except BaseException:  # noqa: BLE001 - a fork must not return
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitpid(child, os.WUNTRACED)[1]
    journal = case.artifacts.journal
    return Stopped(
        child,
        None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status),
        is_held(case.artifacts.lock),
        journal.read_bytes() if journal.exists() else b"",
    )


def go_on(stopped: Stopped) -> int:
    """Its exit status, after it was continued."""
    if stopped.status is not None:
        return stopped.status
    os.kill(stopped.pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(stopped.pid, 0)[1])


def endings(stopped: Stopped) -> set[int]:
    """How it may end after another one had the shard."""
    if not stopped.had_lock:
        # It takes the lock now, and finds the shard whole; or finds it held, or an output that was made meanwhile.
        return {0, _REFUSED}
    # One that had written its end has nothing more to record.
    return {0, _FENCED} if b'"session_ended"' in stopped.journal else {_FENCED}


def after(case: Case, first: int) -> Tried:
    """The successor runs from beginning to end while the first one stands before call ``first``."""
    stopped = begin(case, first)
    if stopped.status is not None:
        return Tried(False, case.wrong)
    before, calls = case.recorded(), case.asked()
    case.rob()
    case.expect("successor failed", right=go_on(begin(case, 0)) == 0)
    content = case.content()
    status = go_on(stopped)
    case.expect("not fenced", right=status in endings(stopped))
    case.expect("written late", right=case.content() == content or not stopped.had_lock)
    case.judge(before, calls)
    return Tried(True, +case.wrong)


def within(case: Case, first: int, second: int) -> Tried:
    """The first one, stopped before call ``first``, goes on while its successor stands before call ``second``."""
    stopped = begin(case, first)
    before, calls = case.recorded(), case.asked()
    case.rob()
    successor = begin(case, second)
    case.expect("not fenced", right=go_on(stopped) in endings(stopped))
    # One that had not looked at the lock yet when it was robbed may have done all of it meanwhile.
    case.expect("successor failed", right=go_on(successor) in ({0} if stopped.had_lock else {0, _REFUSED}))
    case.judge(before, calls)
    return Tried(successor.status is None, +case.wrong)


def thrice(case: Case, first: int, second: int) -> Tried:
    """A third one runs to its end while two stand before some call, the second having overtaken the first."""
    stopped = begin(case, first)
    case.rob()
    successor = begin(case, second)
    before, calls = case.recorded(), case.asked()
    case.rob()
    case.expect("third failed", right=go_on(begin(case, 0)) == 0)
    content, asked_by = case.content(), case.asked()
    for one in (successor, stopped):
        case.expect("not fenced", right=go_on(one) in endings(one))
    case.expect("written late", right=case.content() == content or not successor.had_lock)
    case.judge(before, calls, asked_by)
    return Tried(successor.status is None, +case.wrong)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("way", choices=["after", "within", "thrice"])
    parser.add_argument("--case", choices=sorted(CASES), default="fresh")
    parser.add_argument("--first", type=int, nargs="*", default=[], help="calls before which the first owner is stopped")
    parser.add_argument("--step", type=int, default=1)
    args = parser.parse_args()
    testkit.install()
    sweep, make = Sweep(), partial(CASES[args.case], args.directory / "point")
    for first in args.first if args.way != "after" else [0]:
        if args.way == "after":
            sweep.run("after", lambda call: after(make(), call), step=args.step)
        else:
            way = within if args.way == "within" else thrice
            sweep.run(f"{args.way}, first at {first}", lambda call, at=first, way=way: way(make(), at, call), step=args.step)
    sweep.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
