"""Ctrl-C ends the program with 130 and no traceback, whatever code of others it meets; imports nothing heavy."""

from __future__ import annotations

import os
import signal
import sys

#: typing takes longer to import than --help may last; type checkers take this name for theirs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

CODE = 130


class Interrupts:
    """While it is entered, an interrupt that meets an import ends the program there, and none is lost in a callback.

    Modules in C or Rust crash, panic or drop it where something that they import is interrupted; nothing is half done there
    that a kill would not leave as well. Everywhere else an interrupt is raised as ever.
    """

    def __init__(self) -> None:
        #: What is told when it ends the program.
        self.told = ""

    def __enter__(self) -> None:
        self._hook, sys.unraisablehook = sys.unraisablehook, _interrupt_again
        # A program that ignores SIGINT, as a shell makes its background jobs do, or that has a handler of its own, keeps that.
        self._is_mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_mine:
            signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(self, *_: object) -> None:
        if self._is_mine and signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = self._hook

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if any(inner.f_code.co_filename == "<frozen importlib._bootstrap>" for inner in _frames(frame)):
            os.write(2, self.told.encode())
            os._exit(CODE)
        signal.default_int_handler(number, frame)


def code_of_interrupt() -> int:
    """The exit code, and nothing in Python's way of ending with it."""
    # An interrupt that passes code made from text, as of dataclasses, is kept in mind by Python since 3.8, which then kills
    # itself by SIGINT at the end, whatever the code: ssh makes 255 of that. Any other such code makes it forget.
    exec("")  # noqa: S102 - no text of anybody's
    return CODE


def is_of_interrupt(error: BaseException | None) -> bool:
    """Whether ``error`` is an interrupt, or what became of one in code of others that was cut off where it cleaned up."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    return is_of_interrupt(error.__context__)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    from _thread import interrupt_main, start_new_thread

    # By another thread, which gets its turn when this callback has returned: in here it would be lost again.
    start_new_thread(interrupt_main, ())
