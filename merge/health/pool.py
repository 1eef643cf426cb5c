"""The digests of all slices, in order, found by as many processes as there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from merge.fan_out import share_out
from merge.health.checks import Check
from merge.health.slices import Slice
from merge.health.worker import SliceDigest, digest_slice

#: Fewer slices are checked by one process before another has begun.
_ALONE: Final = 4


def digest_slices(slices: Iterable[Slice], ignored: frozenset[Check], workers: int | None) -> Iterator[SliceDigest]:
    """What each of ``slices`` holds, in order. ``workers``: None for one a processor, eight at most."""
    work = partial(digest_slice, ignored=ignored)
    # Beside threads, as at the end of a session, workers take 0.3 s to start.
    return share_out(work, slices, alone=_ALONE, workers=workers, may_start_afresh=True)
