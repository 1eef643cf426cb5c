"""Equal lines of a dataset: they are one task, and each further one is more repeats of it."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from collector.text.counted import counted

#: Parts in which equal lines are searched for by their digests: one part at a time is sorted.
_PARTS: Final = 64


class Copies(NamedTuple):
    """The lines that stand in a dataset more than once."""

    #: How often each stands there, by its digest.
    counts: Mapping[bytes, int]
    #: How many lines equal an earlier one, and the number of the first of them; 0 when there is none.
    repeated: int = 0
    first_line: int = 0

    @property
    def note(self) -> str:
        """What becomes of them, for people; empty when there are none."""
        if not self.repeated:
            return ""
        if self.repeated == 1:
            return f"1 row repeats an earlier row and counts as a further repeat of its task: at line {self.first_line}"
        what = f"{counted(self.repeated, 'row')} repeat earlier rows and count as further repeats of their task"
        return f"{what}: first at line {self.first_line}"


def find_copies(lines: Callable[[], Iterator[tuple[int, bytes]]]) -> Copies:
    """The equal ones of ``lines``, which gives number and bytes of each, from the first one on, every time it is called.

    Eight bytes of every digest are kept while it is looked for, the rest only of lines that may be equal.
    """
    parts = [array("Q") for _ in range(_PARTS)]
    for _, line in lines():
        short = int.from_bytes(digest_of(line)[:8])
        parts[short % _PARTS].append(short)
    twice: set[int] = set()
    for part in parts:
        twice.update(first for first, second in pairwise(sorted(part)) if first == second)
    if not twice:
        return Copies({})
    found: Counter[bytes] = Counter()
    first_line = 0
    for number, line in lines():
        digest = digest_of(line)
        if int.from_bytes(digest[:8]) in twice:
            first_line = first_line or (number if digest in found else 0)
            found[digest] += 1
    counts = {digest: copies for digest, copies in found.items() if copies > 1}
    return Copies(counts, sum(counts.values()) - len(counts), first_line)


def digest_of(line: bytes) -> bytes:
    """What tells lines apart."""
    return hashlib.sha256(line).digest()
