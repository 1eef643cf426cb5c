"""Regular expressions of users against answers of models: compiled once, searched in a worker, bounded in time."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from collector.outcomes import Delivery, Failure, FailureClass, FailureKind, Stage
from collector.verifiers.workers import WorkerPool, WorkError, WorkTimeoutError

#: A search of a sane pattern through 10 MB takes milliseconds.
SEARCH_TIMEOUT_S: Final = 5.0
_WORKERS: Final = 2
_TARGET: Final = "collector.verifiers.patterns:search"


class How(StrEnum):
    """Where the pattern must stand in the text, and which match counts."""

    FIRST = "first"
    LAST = "last"
    FULL = "full"


def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The compiled ``pattern``. Raises ValueError that quotes what is wrong with it."""
    try:
        return _compiled(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern[:80]!r} is not a regular expression: {error}") from error


@lru_cache(maxsize=4096)
def _compiled(pattern: str, flags: int) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def search(task: dict[str, Any]) -> str | None:
    """The group 1 (or the whole) of the match of ``pattern`` in ``text``; None when there is none. Runs in a worker."""
    pattern, text = compile_pattern(task["pattern"], task["flags"]), task["text"]
    match How(task["how"]):
        case How.FULL:
            found = pattern.fullmatch(text)
        case How.FIRST:
            found = pattern.search(text)
        case How.LAST:
            found = None
            for found in pattern.finditer(text):  # noqa: B007 - the last one stays
                pass
    if found is None:
        return None
    return (found.group(1) or "") if pattern.groups else found.group()


def search_pool() -> WorkerPool:
    """Workers for ``search``."""
    return WorkerPool(_TARGET, size=_WORKERS, timeout_s=SEARCH_TIMEOUT_S)


async def find(pool: WorkerPool, pattern: str, text: str, how: How, *, flags: int = 0) -> str | Failure | None:
    """``search`` in a worker; a search that does not end is a failure of this one answer."""
    try:
        return await pool.run({"pattern": pattern, "text": text, "how": how.value, "flags": int(flags)})
    except (WorkTimeoutError, WorkError) as error:
        return grading_failed(f"the search for {pattern[:80]!r} failed: {error}", type(error).__name__)


def grading_failed(reason: str, exception_type: str) -> Failure:
    """A failure of the verifier: the answer arrived and cannot be graded, so it has no score."""
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.VERIFIER_ERROR,
        reason=reason,
        delivery=Delivery.DELIVERED,
        stage=Stage.VERIFICATION,
        exception_type=exception_type,
    )
