"""The state of every rollout of a shard, read from its files without changing a byte.

Read order: manifest, inventory, journal, then only those bytes of the row files that no event accounts for. What a crash can
leave behind becomes a list of repairs for whoever holds the lock; what no crash explains is a CorruptArtifactError.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Self

from collector.artifacts import RunArtifacts
from collector.errors import BrokenInventoryError, CorruptArtifactError, NotFoundError
from collector.formats import events
from collector.formats.inventory import Inventory, line_blocks
from collector.formats.manifest import Manifest, read_manifest
from collector.formats.moves import read_moved
from collector.settings import RetrySettings
from collector.shard.invalid_judge import invalid_results
from collector.shard.row_audit import Repair, Repairs, RowAudit, RowFile, may_begin
from collector.state.coverage import Coverage, count
from collector.state.history import History

#: How a journal line begins, whatever the event: what cannot continue this is no torn line.
_EVENT_HEAD = b'{"event":"'


class RolloutStore:
    """A shard as its files describe it now. Close it, or use it as a context manager."""

    def __init__(self, artifacts: RunArtifacts, manifest: Manifest, inventory: Inventory, *, keeps_rows: bool) -> None:
        self.artifacts = artifacts
        self.manifest = manifest
        self.inventory = inventory
        self.history = History(len(inventory), keeps_rows=keeps_rows)
        self.repairs = Repairs()
        #: Bytes of the journal when it was read; more by now means that somebody else writes.
        self.journal_size = 0

    @classmethod
    def read(cls, artifacts: RunArtifacts, *, for_dispatch: bool = False) -> RolloutStore:
        """The store at ``artifacts``. Raises NotFoundError without a manifest, CorruptArtifactError for a broken history.

        ``for_dispatch`` promises not to ask where rows stand when there are none yet, and saves the memory for it.
        """
        manifest = read_manifest(artifacts.manifest)
        if manifest is None:
            raise NotFoundError(
                "there is no prepared run.", "Its manifest is written when preparation is complete.", artifacts.manifest
            )
        rollouts, _, journal, listed, failures, _ = artifacts.names_read
        sizes = [_size_of(name) for name in (listed, journal, rollouts, failures)]
        inventory = Inventory(artifacts.inventory)
        is_begun = any(sizes[1:]) or artifacts.moved.exists()
        if for_dispatch and not is_begun:
            inventory.forget_keys()
        store = cls(artifacts, manifest, inventory, keeps_rows=is_begun or not for_dispatch)
        try:
            store._check_inventory()
            index = inventory.index_by_id() if is_begun else {}
            store._read_journal(index)
            for file in RowFile:
                RowAudit(
                    artifacts, file, run_id=manifest.run_id, history=store.history, index=index, repairs=store.repairs
                ).run()
            store._take_out_moved(index)
        except BaseException:
            inventory.close()
            raise
        return store

    def coverage(self, retry: RetrySettings) -> Coverage:
        """The counts of this shard under ``retry``."""
        return count(self.history, self.manifest, self.inventory, retry)

    def needs_session(self, retry: RetrySettings) -> bool:
        """Whether a session under ``retry`` would find work: a rollout to dispatch, or a result to make a failure first.

        Reads result rows only when ``retry_invalid_judge_responses`` is on, up to the first one that is flagged.
        """
        if not self.coverage(retry).is_final:
            return True
        flagged = invalid_results(self.artifacts, self.history, self.inventory, self.manifest)
        return retry.retry_invalid_judge_responses and next(flagged, None) is not None

    def close(self) -> None:
        """Close the inventory."""
        self.inventory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take_out_moved(self, index: dict[str, int]) -> None:
        for rollout_id in read_moved(self.artifacts):
            if rollout_id not in index:
                raise CorruptArtifactError(self.artifacts.moved, 0, f"rollout {rollout_id!r} is not in the inventory.")
            self.history.move(index[rollout_id])

    def _check_inventory(self) -> None:
        if self.inventory.digest != self.manifest.inventory_digest or len(self.inventory) != self.manifest.expected:
            raise BrokenInventoryError(self.artifacts.inventory, 0, "not the inventory the manifest was written for.")

    def _read_journal(self, index: dict[str, int]) -> None:
        path = self.artifacts.journal
        for block in line_blocks(path):
            whole, tail = (block, b"") if block.endswith(b"\n") else _split_tail(block)
            self._fold(whole, index)
            if tail:
                self._fold_tail(path, self.journal_size + len(whole), tail, index)
            self.journal_size += len(block)

    def _fold(self, lines: bytes, index: dict[str, int]) -> None:
        try:
            found = events.parse_many(lines)
        except ValueError:
            found = self._parse_up_to_error(lines, index)
        try:
            self.history.fold(found, index, self.manifest.run_id)
        # A number that is negative or beyond 64 bits breaks the fold as surely as an event out of order.
        except (ValueError, OverflowError) as error:
            raise CorruptArtifactError(self.artifacts.journal, self.history.events + 1, f"{error}.") from error

    def _parse_up_to_error(self, lines: bytes, index: dict[str, int]) -> list[events.Event]:
        """Name the line that made the whole block unreadable; what stands before it is folded first, so that it counts."""
        for line in lines.split(b"\n")[:-1]:
            try:
                event = events.parse(line)
            except ValueError as error:
                what = f"not a journal event ({error})."
                raise CorruptArtifactError(self.artifacts.journal, self.history.events + 1, what) from error
            self._fold(events.encode(event), index)
        return []

    def _fold_tail(self, path: Path, offset: int, tail: bytes, index: dict[str, int]) -> None:
        kept = tail.rstrip(b"\0")
        try:
            events.parse(tail)
        except ValueError as error:
            if not may_begin(kept, _EVENT_HEAD):
                raise CorruptArtifactError(path, self.history.events + 1, "the last line begins no event.") from error
            self.repairs.lines.append(Repair(path, offset))
            return
        self._fold(tail, index)
        self.repairs.lines.append(Repair(path, None))


def _split_tail(block: bytes) -> tuple[bytes, bytes]:
    end = block.rfind(b"\n") + 1
    return block[:end], block[end:]


def _size_of(name: str) -> int:
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.stat(name)  # noqa: PTH116 - making a path takes longer, and a status looks at thousands of shards
        if stat.S_ISREG(found.st_mode):
            return found.st_size
    raise CorruptArtifactError(Path(name), 0, "the file is missing and the run's manifest exists.")
