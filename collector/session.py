"""One incarnation of a collector on a shard: takes over what its files say, repairs them, and records from there on."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from collector import durable
from collector.artifacts import RunArtifacts
from collector.commit import GroupCommitter
from collector.errors import GymEvalError, RefusedError, StorageError
from collector.formats import rows
from collector.formats.events import (
    Dispatched,
    Event,
    Failed,
    Lost,
    Migrated,
    OmittedEvent,
    SessionEnded,
    SessionStarted,
    Success,
)
from collector.formats.record import Attempt
from collector.journal import Draft, Entry, Journal
from collector.shard.invalid_judge import invalid_results
from collector.shard.lock import ShardLock
from collector.shard.recorded import as_recorded
from collector.shard.store import RolloutStore
from collector.state.history import History
from collector.version import installed_version

#: Rows made failures with one commit: so many are in memory at once.
_MIGRATED_AT_ONCE = 64
#: A tuple, made once: a union of types is made anew each time it is written.
_OF_A_ROLLOUT: Final = (Dispatched, Success, Failed, Migrated, OmittedEvent, Lost)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the scheduler calls the job this collector runs in; empty on one machine."""

    job_id: str | None = None
    restart_count: int | None = None


class ShardSession:
    """A live session. ``open`` under the shard's lock; ``commit`` many; ``end`` once."""

    def __init__(self, store: RolloutStore, journal: Journal, session: int) -> None:
        self.store = store
        self.number = session
        self.run_id = store.manifest.run_id
        #: Tokens that judges were sent and said in this session; they are in no journal.
        self.judge_tokens = [0, 0]
        self._journal = journal
        self._committer = GroupCommitter(journal, self._apply)

    @classmethod
    def open(
        cls, artifacts: RunArtifacts, lock: ShardLock, job: JobFacts, *, is_synced: bool, store: RolloutStore | None = None
    ) -> ShardSession:
        """Validate the whole history, then repair, then begin. Nothing is written when validation refuses.

        ``store``: the shard as it was read under ``lock``, so that it is not read again; it is closed with the session.
        """
        store = store or RolloutStore.read(artifacts, for_dispatch=True)
        journal: Journal | None = None
        try:
            if _may_live(store.history, lock):
                store = _take_over(store, lock)
            session = store.history.session + 1
            # Opened before the fence is looked at: when the lock is still ours after that, the files are ours too, for good.
            journal = Journal(artifacts, lock, session=session, journal_size=store.journal_size, is_synced=is_synced)
            journal.check()
            for repair in store.repairs.lines:
                journal.repair(repair.path, repair.cut_at)
            lock.describe_holder(session)
            opened = cls(store, journal, session)
            opened._begin(job, lock)
        except BaseException as error:
            store.close()
            if journal is not None:
                journal.close()
            if isinstance(error, OSError):
                # A file that vanished may be the successor's doing.
                lock.check()
                raise _explained(error) from error
            raise
        return opened

    def migrate_invalid_judgements(self) -> int:
        """Make every result flagged ``invalid_judge_response`` a failure that is tried again; how many there were.

        Before the first dispatch only. Durable when this returns; a crash before leaves what the next session completes.
        """
        store, count = self.store, 0
        found = invalid_results(store.artifacts, store.history, store.inventory, store.manifest)
        while batch := [Entry(one.draft, one.index, one.line) for one in islice(found, _MIGRATED_AT_ONCE)]:
            self._apply(batch, self._journal.commit(batch))
            count += len(batch)
        return count

    def may_reuse(self, index: int) -> bool:
        """Whether the latest recorded outcome of an open rollout lets the next attempt use the deliverable it left.

        Interrupted attempts since then change nothing. Raises CorruptArtifactError for a row that is not the recorded one.
        """
        place = self.store.history.failure_place(index)
        if place is None:
            return False
        row = self._journal.failure_row(place.offset, place.length)
        return rows.allows_reuse(as_recorded(row, place, self.store.artifacts.failures))

    async def dispatch(self, index: int, attempt: int, *, rollout_id: str | None = None) -> None:
        """Record that attempt ``attempt`` of rollout ``index`` leaves; durable when this returns.

        A caller that has read the row gives its ``rollout_id``, so that it is not read again.
        """
        rollout_id = rollout_id or self.store.inventory.rollout_id(index)
        await self._committer.commit(self._dispatched(index, attempt, rollout_id))

    async def settle(
        self, index: int, draft: Success | Failed | OmittedEvent, row: bytes | None, *, following: Attempt | None = None
    ) -> None:
        """Record an outcome of rollout ``index`` and its row, and that ``following`` leaves; durable when this returns."""
        entries = [Entry(draft, index, row)]
        if following is not None:
            entries.append(self._dispatched(following.index, following.number, following.rollout_id))
        await self._committer.commit(*entries)

    def _dispatched(self, index: int, attempt: int, rollout_id: str) -> Entry:
        draft = Dispatched(run_id=self.run_id, session=self.number, seq=-1, at="", rollout_id=rollout_id, attempt_index=attempt)
        return Entry(draft, index)

    async def settled(self) -> None:
        """Return when everything that was handed over to be recorded is: attempts that were given up may have left outcomes."""
        await self._committer.idle()

    async def end(self, reason: str) -> None:
        """Say that the shard is let go, and close its files. A journal that is broken already stays as it is."""
        try:
            await self._committer.commit(
                Entry(SessionEnded(run_id=self.run_id, session=self.number, seq=-1, at="", reason=reason))
            )
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Close the files without a word: what a killed session leaves."""
        try:
            await self._committer.close()
        finally:
            self._journal.close()
            self.store.close()

    def check(self) -> None:
        """Raise FencedError when the shard is no longer ours."""
        self._journal.check()

    def _begin(self, job: JobFacts, lock: ShardLock) -> None:
        repairs = self.store.repairs
        started = SessionStarted(
            run_id=self.run_id,
            session=self.number,
            seq=-1,
            at="",
            reason="resume" if self.number else "fresh",
            host=socket.gethostname(),
            pid=os.getpid(),
            job_id=job.job_id,
            restart_count=job.restart_count,
            version=installed_version(),
            lock=lock.backend,
        )
        drafts: list[Draft] = [started, *repairs.lost, *repairs.recovered]
        written = self._journal.commit([Entry(draft) for draft in drafts])
        # What was recovered or lost is in the fold already, since the store was read.
        self.store.history.fold(written[:1], {}, self.run_id)
        for repair in repairs.cuts:
            self._journal.repair(repair.path, repair.cut_at)

    def _apply(self, batch: list[Entry], written: list[Event]) -> None:
        for entry, event in zip(batch, written, strict=True):
            if isinstance(event, _OF_A_ROLLOUT):
                self.store.history.apply(event, entry.index)


def _may_live(history: History, lock: ShardLock) -> bool:
    """Whether an earlier owner may be alive without knowing that it lost the shard.

    It may be the newest session's, or one that was stopped before it recorded a session of its own.
    """
    has_ended = history.session in history.ended and lock.knows_owner_before
    return not has_ended and not lock.was_let_go_by(history.session)


def _take_over(store: RolloutStore, lock: ShardLock) -> RolloutStore:
    """The store read again, from copies of the three files that only grow; their old owner keeps the originals, unnamed.

    The journal first: an event never comes without the row that was durable before it. Interrupted, it is done again.
    """
    store.close()
    files = (store.artifacts.journal, store.artifacts.failures, store.artifacts.rollouts)
    for path in files:
        durable.sweep(path, fence=lock.check)
    for path in files:
        # An owner that never began a session writes no row: its first event tells it that the shard is lost.
        if path == store.artifacts.journal or store.history.session >= 0 or path.stat().st_size:
            durable.renew(path, lock.check)
    return RolloutStore.read(store.artifacts, for_dispatch=True)


def _explained(error: OSError) -> GymEvalError:
    path = Path(error.filename or "")
    if isinstance(error, PermissionError) and error.filename:
        what = f"it belongs to uid {path.stat().st_uid} and cannot be written by uid {os.geteuid()}."
        return RefusedError(what, "Resume as that user, or have the files of the run made writable for your group.", path)
    return StorageError(f"the shard cannot be opened: {error.strerror}.", "Mend that, then resume.", error.filename or "")
