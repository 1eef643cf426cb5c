"""Standard output and standard error as every command finds them: no text is too odd, and errors are not among results."""

from __future__ import annotations

import codecs
import io
import os
import sys


def make_outputs_take_all() -> None:
    """Let outputs write escapes for characters that they do not have: what is for people is never a result."""
    if sys.stderr is None:
        # Python would print it to standard output instead, where programs read.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open while the program is
    codecs.register_error("as-in-json", _escapes_for)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="as-in-json")


def _escapes_for(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an output does not have: JSON means the same by it, and people can read it."""
    import json

    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
