"""Why jobs ended before their work was done: the error each of them wrote last, said once."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.text.counted import counted

if TYPE_CHECKING:
    from orchestrate.runs.directory import RunDir
    from orchestrate.runs.plan import BenchmarkPlan

#: How a job begins the line that it ends with.
_ERROR: Final = "gym eval: "
#: How an error about one shard begins.
_SHARD: Final = re.compile(r"(?P<benchmark>.+?) shard (?P<index>\d+)(?: of \d+)?: ")
#: Bytes at a log's end in which that line is looked for.
_TAIL: Final = 16_384
#: Different reasons that are shown; more are counted.
_MOST: Final = 3
#: Logs that are read: reasons repeat themselves, and somebody waits.
_FILES: Final = 200


def reasons(run: RunDir, benchmark: BenchmarkPlan, shards: Collection[int]) -> list[str]:
    """What jobs said last of these shards of ``benchmark``: first jobs that had it to themselves, then those it shared."""
    mine = last_words(run.logs(benchmark), of=benchmark.name, shards=shards)
    shared = last_words(run.logs(None), of=benchmark.name, shards=shards)
    return list(dict.fromkeys([*mine, *shared]))


def last_words(logs: Path, *, of: str, shards: Collection[int]) -> list[str]:
    """The errors that each job log in ``logs`` ends with, newest first, equal ones once; at most three, then how many more.

    Those about other benchmarks than ``of`` and other shards are left out: packed jobs end with one for each of their shards,
    and a shard whose job is in the queue again, or was followed by one that did the work, has nothing to explain. Only
    the newest of very many logs are read.
    """
    files = sorted(logs.glob("job-*.log"), key=_age, reverse=True)[:_FILES]
    said = list(dict.fromkeys(word for path in files for word in _errors_in(path) if _is_about(word, of, shards)))
    more = [f"and {counted(len(said) - _MOST, 'other reason')}"] if len(said) > _MOST else []
    return said[:_MOST] + more


def _age(path: Path) -> float:
    # A log may be cleaned away between the two looks at it.
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _is_about(word: str, benchmark: str, shards: Collection[int]) -> bool:
    place = _SHARD.match(word)
    return place is None or (place["benchmark"] == benchmark and int(place["index"]) in shards)


def _errors_in(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            text = file.read()
    except OSError:
        # One that cannot be read explains nothing, and hides no other.
        return []
    lines = text.decode("utf-8", errors="replace").splitlines()
    # A job that ended well afterwards, after a requeue say, has nothing to explain.
    said = takewhile(lambda line: line.startswith(_ERROR), (line for line in reversed(lines) if line.strip()))
    return [line.removeprefix(_ERROR) for line in said][::-1]
