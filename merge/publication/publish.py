"""The projection's bytes: copied, digested and put in place in one step, with the inputs found unchanged before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Self

from collector import durable
from collector.durable import StagedFile
from merge.fan_out import run_tasks
from merge.inputs.shards import ShardView
from merge.metrics.table import RowTable
from merge.rows.blocks import RowBlock, RowMemory, Stretch, plan_stretches, read_stretch, unreadable
from merge.rows.numbers import EXTRACTED, NumberReader, RowNumbers, UnreadableRowError

#: Bytes of rows below which one process is done before a second one has begun.
_WORTH_IT: Final = 32 << 20
#: Bytes read at once for the digest.
_CHUNK: Final = 1 << 20
#: Bytes after which what is written is made durable beside the work.
_SYNC_EVERY: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in a published file."""

    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one agent, which follow each other in the projection, and the table that takes their numbers."""

    shards: Sequence[ShardView]
    answer_field: str = EXTRACTED
    subset_field: str | None = None
    table: RowTable = field(default_factory=RowTable)


def publish_parts(target: Path, parts: Sequence[Part], before: Callable[[], None] = lambda: None) -> Written:
    """Make ``target`` hold the selected rows of ``parts``, each in (task, repeat) order: the old file or the new one.

    Its mode stays, and a link stays with its target replaced. ``before`` is called when all rows are copied, with the tables of
    ``parts`` filled. Raises what it raises, CorruptArtifactError for a row that is not the recorded one, RefusedError when an
    input changed meanwhile; ``target`` is untouched then. The caller holds the merge lock.
    """
    stretches = [(part, stretch) for part in parts for stretch in plan_stretches(part.shards)]
    places = list(accumulate((stretch.size for _, stretch in stretches), initial=0))
    hasher = hashlib.sha256()
    with durable.staged(target) as file:
        tasks = _copies(stretches, places, file)
        # Closed when all is copied: beside its threads nothing else could be shared out.
        with closing(run_tasks(tasks, is_worth_it=places[-1] >= _WORTH_IT)) as copies, _EarlySync(file) as early:
            for (part, stretch), place, numbers in zip(stretches, places, copies, strict=False):
                # A digest goes from front to back and cannot be shared out; it is of what the file holds by now.
                for begin in range(place, place + stretch.size, _CHUNK):
                    hasher.update(file.read_range(begin, min(_CHUNK, place + stretch.size - begin)))
                part.table.add(numbers)
                early.reach(place + stretch.size)
            early.end()
        before()
        for part in parts:
            for shard in part.shards:
                shard.check_payload()
    rows = sum(len(shard.rows) for part in parts for shard in part.shards)
    return Written(rows, places[-1], hasher.hexdigest())


class _EarlySync:
    """Makes a long file durable while it is being written, so that nobody waits for all of it at its end."""

    def __init__(self, file: StagedFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="early-sync")
        self._running: Future[None] | None = None
        self._next = _SYNC_EVERY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.shutdown()

    def reach(self, size_bytes: int) -> None:
        """So much is written. Raises OSError for what the disk did not take: the kernel tells it only once."""
        if size_bytes < self._next or (self._running is not None and not self._running.done()):
            return
        if self._running is not None:
            self._running.result()
        # A thread, begun when the processes that help are there already: a fork would copy its locks.
        self._running = self._thread.submit(self._file.sync)
        self._next = size_bytes + _SYNC_EVERY

    def end(self) -> None:
        """Wait for what is under way. Raises like ``reach``."""
        if self._running is not None:
            self._running.result()


def _copies(
    stretches: Sequence[tuple[Part, Stretch]], places: Sequence[int], file: StagedFile
) -> list[Callable[[], RowNumbers]]:
    readers = {id(part): NumberReader(part.answer_field, part.subset_field) for part, _ in stretches}
    # Each process that helps has its own from its first write on.
    memory = RowMemory()
    return [
        partial(_copy, part.shards, stretch, memory, readers[id(part)], partial(file.write_at, place))
        for (part, stretch), place in zip(stretches, places, strict=False)
    ]


def _copy(
    shards: Sequence[ShardView],
    stretch: Stretch,
    memory: RowMemory,
    reader: NumberReader,
    write: Callable[[Sequence[memoryview]], Any],
) -> RowNumbers:
    """Write the rows of ``stretch`` where they belong. Their places are known before, so that any process may write any."""
    block = read_stretch(shards, stretch, memory)
    write(block.lines)
    return numbers_of(block, reader, shards)


def numbers_of(block: RowBlock, reader: NumberReader, shards: Sequence[ShardView]) -> RowNumbers:
    """What ``reader`` finds in ``block``, which is of ``shards``. Raises CorruptArtifactError for a row that it cannot read."""
    try:
        return reader.read(block)
    except UnreadableRowError as error:
        raise unreadable(shards, error.key, error.why) from error
