"""The projection's bytes: streamed, digested and put in place in one step, with the inputs found unchanged before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collector import durable
from merge.row_blocks import RowBlock, read_rows
from merge.shards import ShardView
from merge.table import RowTable


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in a published file."""

    rows: int
    size_bytes: int
    sha256: str


class RowObserver(Protocol):
    """Sees the rows of a projection while they are copied, so that they are read once."""

    def see(self, block: RowBlock) -> None:
        """Called for each block, in order."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one agent, which follow each other in the projection, and the table of their numbers."""

    shards: Sequence[ShardView]
    table: RowTable

    def blocks(self) -> Iterator[RowBlock]:
        """The selected rows in (task, repeat) order."""
        return read_rows(self.shards)


def publish_rows(target: Path, shards: Sequence[ShardView], observer: RowObserver) -> Written:
    """``publish_parts`` for one part and any observer."""
    return _publish(target, [(read_rows(shards), observer)], shards)


def publish_parts(target: Path, parts: Sequence[Part]) -> Written:
    """Make ``target`` hold the selected rows of ``parts``, each in (task, repeat) order: the old file or the new one.

    Its mode stays, and a link stays with its target replaced. Raises CorruptArtifactError for a row that is not the recorded
    one and RefusedError when an input changed meanwhile; ``target`` is untouched then. The caller holds the merge lock.
    """
    return _publish(target, [(part.blocks(), part.table) for part in parts], [s for part in parts for s in part.shards])


def _publish(target: Path, sources: Iterable[tuple[Iterator[RowBlock], RowObserver]], shards: Sequence[ShardView]) -> Written:
    hasher = hashlib.sha256()
    rows = 0
    with durable.staged(target) as file:
        # Writing and digesting release the interpreter: the next block is read and looked at meanwhile.
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="projection") as workers:
            pending: list[Future[None]] = []
            for blocks, observer in sources:
                for block in blocks:
                    _wait(pending)
                    pending = [workers.submit(file.write, block.data), workers.submit(hasher.update, block.data)]
                    observer.see(block)
                    rows += len(block.keys)
            _wait(pending)
        for shard in shards:
            shard.check_payload()
    return Written(rows, file.size_bytes, hasher.hexdigest())


def _wait(pending: list[Future[None]]) -> None:
    for future in pending:
        future.result()


def sweep_leftovers(paths: Sequence[Path]) -> None:
    """Remove what crashed publications of ``paths`` left. The caller holds the lock under which they are published."""
    for path in paths:
        durable.sweep(path.resolve() if path.is_symlink() else path)
