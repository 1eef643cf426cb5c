"""argparse with errors in one line and a guess for a misspelt flag."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import NoReturn


class CommandParser(argparse.ArgumentParser):
    """Flags are never abbreviated: what a script relies on must not change its meaning when a flag is added."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line."""
        known = [flag for action in self._actions for flag in action.option_strings]
        words = [word.partition("=")[0] for word in message.split() if word.startswith("-")]
        near = difflib.get_close_matches(words[0], known, n=1) if words and words[0] not in known else []
        hint = f" Did you mean {near[0]}?" if near else f" See {self.prog} --help."
        sys.stderr.write(f"{self.prog}: {message}.{hint}\n")
        sys.exit(2)
