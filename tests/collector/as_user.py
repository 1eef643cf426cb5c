"""A program: one collector session as another user of the same group, with a umask. Started by root; prints the error's line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from collector.errors import GymEvalError
from tests.collector.shards import fill, settings_for, write_dataset
from tests.support import testkit

GROUP = 48210


def warm_up() -> None:
    """Load everything that a session loads, while the interpreter's own files can be read: they may lie in root's home."""
    with TemporaryDirectory() as name:
        write_dataset(Path(name) / "tasks.jsonl", [{"n": 0, "grade": 1, "fail": 99, "status": None}])
        fill(settings_for(Path(name), retry={"max_attempts": 1}))


def main() -> int:
    directory, user, mask = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3], 8)
    testkit.install()
    warm_up()
    settings = settings_for(directory, agent={"log": None}, retry={"max_attempts": int(sys.argv[4])})
    os.setgroups([])
    os.setgid(GROUP)
    os.setuid(user)
    os.umask(mask)
    try:
        fill(settings)
    except GymEvalError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
