"""A program: one collector session on the dataset in a directory. Ends with the exit code of its error, its message on stderr."""

from __future__ import annotations

import sys
from pathlib import Path

from collector.errors import GymEvalError
from tests.collector.shards import fill, settings_for
from tests.support import testkit


def main() -> int:
    testkit.install()
    try:
        fill(settings_for(Path(sys.argv[1]), num_samples_in_parallel=2, retry={"max_attempts": 30}))
    except GymEvalError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
