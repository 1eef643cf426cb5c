"""Any order of dispatch, outcome, crash, drain, migration, second writer, lost shard and resume keeps what was acknowledged."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, precondition, rule

from collector.artifacts import RunArtifacts
from collector.collect import collect
from collector.errors import FencedError, LockHeldError
from collector.session import JobFacts, ShardSession
from collector.settings import RetrySettings
from collector.shard.lock import ShardLock
from collector.shard.store import RolloutStore
from collector.state.retry import pending
from collector.stop import StopRequest
from tests.collector.machine_model import FINAL, STATES, Known, StopAfter, record_of
from tests.collector.shards import asked, prepare, rows_of, settings_for, write_dataset

RETRY = RetrySettings(max_attempts=4)
#: The second task fails at the first call of each session.
TASKS = [{"n": n, "grade": 1, "fail": n % 2} for n in range(3)]
ROLLOUTS = len(TASKS)
KINDS = st.sampled_from(["measured", "flagged", "failed", "terminal"])


class ShardMachine(RuleBasedStateMachine):
    """One shard; at most one live session, and perhaps one that lost the shard and does not know it yet."""

    open_attempts = Bundle("open_attempts")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        write_dataset(self.directory / "tasks.jsonl", TASKS)
        self.settings = settings_for(self.directory, num_samples_in_parallel=2, retry={"max_attempts": 4})
        self.artifacts: RunArtifacts = prepare(self.settings)
        self.runner = asyncio.Runner()
        self.lock: ShardLock | None = None
        self.session: ShardSession | None = None
        self.ghost: ShardSession | None = None
        self.known = [Known() for _ in range(ROLLOUTS)]
        #: The row of every result that counts.
        self.results: dict[int, bytes] = {}

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @initialize()
    def begin(self) -> None:
        self._open()

    def _open(self) -> None:
        self.lock = ShardLock(self.artifacts.lock)
        self.lock.__enter__()
        self.session = ShardSession.open(self.artifacts, self.lock, JobFacts(), is_synced=False)

    def _kill(self) -> None:
        self.run(self.session.abandon())
        self.lock.__exit__()

    @rule(target=open_attempts, choice=st.integers(0, ROLLOUTS - 1))
    def dispatch(self, choice: int) -> Any:
        ready = pending(self.session.store.history, RETRY)
        if choice not in ready or self.session.store.history.past(choice).state == "unknown":
            return multiple()
        number = self.session.store.history.past(choice).dispatched
        self.run(self.session.dispatch(choice, number))
        self.known[choice].dispatched = number + 1
        return (self.session.number, choice, number)

    @rule(attempt=consumes(open_attempts), kind=KINDS)
    def settle(self, attempt: tuple[int, int, int], kind: str) -> None:
        session, index, number = attempt
        if session != self.session.number:
            return
        made = record_of(self.session, index, number, kind)
        self.run(self.session.settle(index, made.draft, made.line))
        self.known[index].outcomes.append((number, kind))

    @rule(cut=st.integers(0, 5000), attempt=consumes(open_attempts), kind=st.sampled_from(["measured", "flagged", "failed"]))
    def crash_within_a_write(self, cut: int, attempt: tuple[int, int, int], kind: str) -> None:
        """The last batch reached the disk up to some byte: rows first, then the journal."""
        session, index, number = attempt
        if session != self.session.number:
            return
        row_file = self.artifacts.failures if kind == "failed" else self.artifacts.rollouts
        sizes = self._sizes(row_file)
        made = record_of(self.session, index, number, kind)
        self.run(self.session.settle(index, made.draft, made.line))
        self._kill()
        row_part = self._keep(sizes, row_file, cut)
        # Not acknowledged, but a whole row may count: the shard itself says which.
        if row_part >= len(made.line) - 1:
            self.known[index].outcomes.append((number, kind))
        self._open()

    @rule()
    def crash(self) -> None:
        self._kill()
        self._open()

    @rule(cut=st.none() | st.integers(0, 6000))
    def make_failures_of_invalid_judgements(self, cut: int | None) -> None:
        """A session that begins with the migration; with ``cut`` it dies while its batch reaches the disk up to some byte."""
        self._kill()
        self._open()
        offsets = self.session.store.history.offsets
        flagged = sorted((n for n in range(ROLLOUTS) if self.known[n].latest == "flagged"), key=offsets.__getitem__)
        sizes = self._sizes(self.artifacts.failures)
        assert self.session.migrate_invalid_judgements() == len(flagged)
        if cut is not None and flagged:
            self._kill()
            lines = self.artifacts.failures.read_bytes()[sizes[self.artifacts.failures] :].splitlines(keepends=True)
            kept, flagged = self._keep(sizes, self.artifacts.failures, cut), self._whole(lines, cut, flagged)
            assert kept <= sum(map(len, lines))
            self._open()
        for index in flagged:
            number, _ = self.known[index].outcomes.pop()
            self.known[index].outcomes.append((number, "migrated"))
            del self.results[index]

    @staticmethod
    def _whole(lines: list[bytes], cut: int, flagged: list[int]) -> list[int]:
        """Those whose failure row is whole but for its newline at most, in the first ``cut`` bytes of all rows."""
        ends = [sum(map(len, lines[: position + 1])) for position in range(len(lines))]
        return [index for index, end in zip(flagged, ends, strict=True) if cut >= end - 1]

    @rule(outcomes=st.integers(0, 4))
    def drain(self, outcomes: int) -> None:
        """The whole loop, asked to stop when so many outcomes are recorded; what is in flight then may finish."""
        self._kill()
        done = [index for index in range(ROLLOUTS) if self.known[index].latest in FINAL]
        before, session = asked(self.directory), self.session.number + 1

        async def work() -> None:
            stop = StopRequest(margin_s=5)
            with ShardLock(self.artifacts.lock) as lock:
                told = StopAfter(stop, outcomes)
                await collect(self.settings, self.artifacts, lock, job=JobFacts(), stop=stop, progress=told)

        self.run(work())
        calls = asked(self.directory) - before
        assert not [index for index in done if calls[f"{index}-0"]], "a recorded rollout was asked again"
        self._learn(session, calls)
        self._open()

    def _learn(self, session: int, calls: Counter[str]) -> None:
        """What the journal says of a session, read as text."""
        events = [event for event in rows_of(self.artifacts.journal) if event["session"] == session]
        assert Counter(e["rollout_id"] for e in events if e["event"] == "dispatched") == calls
        assert events[-1]["event"] == "session_ended"
        for event in events:
            if event["event"] in {"session_started", "session_ended"} or event.get("recovered"):
                continue
            known, number = self.known[int(event["rollout_id"][0])], event["attempt_index"]
            if event["event"] == "dispatched":
                known.dispatched = number + 1
            else:
                known.outcomes.append((number, "measured" if event["event"] == "success" else "failed"))
        assert all(known.latest != "open" or known.dispatched for known in self.known)

    @rule()
    def a_second_writer_is_refused_and_touches_nothing(self) -> None:
        before = self._content()
        with pytest.raises(LockHeldError):
            ShardLock(self.artifacts.lock).__enter__()
        assert self._content() == before

    @precondition(lambda self: self.ghost is None)
    @rule()
    def lose_the_shard_without_knowing(self) -> None:
        self.artifacts.lock.unlink()
        self.ghost, self.ghost_lock = self.session, self.lock
        self._open()

    @precondition(lambda self: self.ghost is not None)
    @rule(act=st.sampled_from(["dispatch", "settle", "migrate", "end"]), in_time=st.booleans())
    def a_ghost_changes_nothing(self, act: str, in_time: bool) -> None:
        """``in_time``: it looked at the fence while the shard was its own, and was stopped before it wrote."""
        before = self._content()
        ghost, self.ghost = self.ghost, None
        if in_time:
            ghost._journal.check = lambda: None
        try:
            self.run(self._do(ghost, act))
        except FencedError:
            assert not in_time
        else:
            assert in_time or act == "migrate", "a session that lost the shard wrote to it"
        self.run(ghost.abandon())
        self.ghost_lock.__exit__()
        assert self._content() == before

    async def _do(self, ghost: ShardSession, act: str) -> None:
        number = ghost.store.history.past(0).dispatched
        match act:
            case "dispatch":
                await ghost.dispatch(0, number)
            case "settle":
                made = record_of(ghost, 0, max(0, number - 1), "measured")
                # Whatever it believes of the attempt, the bytes are what matters.
                ghost._committer._apply = lambda batch, written: None
                await ghost.settle(0, made.draft, made.line)
            case "migrate":
                ghost.migrate_invalid_judgements()
            case _:
                await ghost.end("terminated")

    @invariant()
    def what_was_acknowledged_is_what_a_reader_sees(self) -> None:
        if self.session is None:
            return
        with RolloutStore.read(self.artifacts) as store:
            assert sum(store.coverage(RETRY).states.values()) == ROLLOUTS
            assert not store.history.late_events
            assert not store.repairs.ignored_rows
            rows = self.artifacts.rollouts.read_bytes()
            for index, known in enumerate(self.known):
                past = store.history.past(index)
                assert past.dispatched == known.dispatched
                assert past.recorded == len(known.outcomes)
                assert past.state == {"never": "never_dispatched", "open": "unknown", **STATES}[known.latest]
                if any(kind in FINAL for _, kind in known.outcomes):
                    assert index not in pending(store.history, RETRY)
                if past.state == "measured":
                    place = store.history.offsets[index]
                    row = rows[place : place + store.history.lengths[index]]
                    assert self.results.setdefault(index, row) == row, "a recorded result changed"
            assert {n for n in range(ROLLOUTS) if self.known[n].latest in {"measured", "flagged"}} == set(self.results)

    def _content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.artifacts.rollouts.parent.glob("rollouts*.jsonl")}

    def _sizes(self, row_file: Path) -> dict[Path, int]:
        return {path: path.stat().st_size for path in (row_file, self.artifacts.journal)}

    def _keep(self, sizes: dict[Path, int], row_file: Path, cut: int) -> int:
        """Of what was written since ``sizes``, rows before events, keep the first ``cut`` bytes; how many of the rows that is."""
        grown = row_file.stat().st_size - sizes[row_file]
        row_part = min(cut, grown)
        event_part = min(max(0, cut - grown), self.artifacts.journal.stat().st_size - sizes[self.artifacts.journal])
        for path, part in ((row_file, row_part), (self.artifacts.journal, event_part)):
            with path.open("r+b") as file:
                file.truncate(sizes[path] + part)
        return row_part

    def teardown(self) -> None:
        if self.ghost is not None:
            self.run(self.ghost.abandon())
            self.ghost_lock.__exit__()
        if self.session is not None:
            self._kill()
        self.runner.close()
        shutil.rmtree(self.directory)


ShardMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestShardMachine = pytest.mark.slow(pytest.mark.timeout(300)(ShardMachine.TestCase))
