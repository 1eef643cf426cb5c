"""Any order of dispatch, outcome, crash, torn write, lost shard and resume keeps what was acknowledged, and only that."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, precondition, rule

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import FencedError
from collector.lock import ShardLock
from collector.outcomes import Answer, Completed, Failure, FailureClass, Verdict
from collector.record import Attempt, record
from collector.retry import pending
from collector.session import JobFacts, ShardSession
from collector.settings import RetrySettings
from collector.store import RolloutStore
from tests.collector.shards import prepare, settings_for, write_dataset

RETRY = RetrySettings(max_attempts=4)
ROLLOUTS = 3


class ShardMachine(RuleBasedStateMachine):
    """One shard; at most one live session, and perhaps one that lost the shard and does not know it yet."""

    open_attempts = Bundle("open_attempts")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        write_dataset(self.directory / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(ROLLOUTS)])
        self.artifacts: RunArtifacts = prepare(settings_for(self.directory))
        self.runner = asyncio.Runner()
        self.lock: ShardLock | None = None
        self.session: ShardSession | None = None
        self.ghost: ShardSession | None = None
        #: rollout -> (attempt, kind) of every acknowledged outcome, in order.
        self.acknowledged: dict[int, list[tuple[int, str]]] = {n: [] for n in range(ROLLOUTS)}
        self.dispatched: dict[int, int] = dict.fromkeys(range(ROLLOUTS), 0)

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @initialize()
    def begin(self) -> None:
        self._open()

    def _open(self) -> None:
        self.lock = ShardLock(self.artifacts.lock)
        self.lock.__enter__()
        self.session = ShardSession.open(self.artifacts, self.lock, JobFacts(), is_synced=False)

    @rule(target=open_attempts, choice=st.integers(0, ROLLOUTS - 1))
    def dispatch(self, choice: int) -> Any:
        ready = pending(self.session.store.history, RETRY)
        if choice not in ready or self.session.store.history.past(choice).state == "unknown":
            return multiple()
        number = self.session.store.history.past(choice).dispatched
        self.run(self.session.dispatch(choice, number))
        self.dispatched[choice] = number + 1
        return (self.session.number, choice, number)

    @rule(attempt=consumes(open_attempts), kind=st.sampled_from(["measured", "failed", "terminal"]))
    def settle(self, attempt: tuple[int, int, int], kind: str) -> None:
        session, index, number = attempt
        if session != self.session.number:
            return
        made = self._record(self.session, index, number, kind)
        self.run(self.session.settle(index, made.draft, made.line))
        self.acknowledged[index].append((number, kind))

    @rule(cut=st.integers(0, 5000), attempt=consumes(open_attempts), kind=st.sampled_from(["measured", "failed"]))
    def crash_within_a_write(self, cut: int, attempt: tuple[int, int, int], kind: str) -> None:
        """The last batch reached the disk up to some byte: rows first, then the journal."""
        session, index, number = attempt
        if session != self.session.number:
            return
        row_file = self.artifacts.rollouts if kind == "measured" else self.artifacts.failures
        sizes = {path: path.stat().st_size for path in (row_file, self.artifacts.journal)}
        made = self._record(self.session, index, number, kind)
        self.run(self.session.settle(index, made.draft, made.line))
        self._kill()
        grown = row_file.stat().st_size - sizes[row_file]
        row_part = min(cut, grown)
        event_part = min(max(0, cut - grown), self.artifacts.journal.stat().st_size - sizes[self.artifacts.journal])
        for path, part in ((row_file, row_part), (self.artifacts.journal, event_part)):
            with path.open("r+b") as file:
                file.truncate(sizes[path] + part)
        # Not acknowledged, but a whole row may count: the shard itself says which.
        if row_part >= grown - 1:
            self.acknowledged[index].append((number, kind))
        self._open()

    @rule()
    def crash(self) -> None:
        self._kill()
        self._open()

    def _kill(self) -> None:
        self.run(self.session.abandon())
        self.lock.__exit__()

    @precondition(lambda self: self.ghost is None)
    @rule()
    def lose_the_shard_without_knowing(self) -> None:
        self.artifacts.lock.unlink()
        self.ghost, self.ghost_lock = self.session, self.lock
        self._open()

    @precondition(lambda self: self.ghost is not None)
    @rule()
    def a_ghost_cannot_write(self) -> None:
        before = self.artifacts.journal.read_bytes()
        try:
            self.run(self.ghost.dispatch(0, 0))
        except FencedError:
            pass
        else:
            raise AssertionError("a session that lost the shard wrote to it")
        assert self.artifacts.journal.read_bytes() == before
        self.run(self.ghost.abandon())
        self.ghost_lock.__exit__()
        self.ghost = None

    @invariant()
    def what_was_acknowledged_is_what_a_reader_sees(self) -> None:
        if self.session is None:
            return
        with RolloutStore.read(self.artifacts) as store:
            coverage = store.coverage(RETRY)
            assert sum(coverage.states.values()) == ROLLOUTS
            for index in range(ROLLOUTS):
                past = store.history.past(index)
                done = self.acknowledged[index]
                assert past.dispatched == self.dispatched[index]
                assert past.recorded == len(done)
                if done and done[-1][0] == past.dispatched - 1:
                    assert past.state == ("measured" if done[-1][1] == "measured" else "failed")
                if any(kind in {"measured", "terminal"} for _, kind in done):
                    assert index not in pending(store.history, RETRY)

    def _record(self, session: ShardSession, index: int, number: int, kind: str) -> Any:
        source = session.store.inventory.line(index)
        attempt = Attempt(
            index=index, number=number, rollout_id=f"{index}-0", run_id=session.run_id, session=session.number,
            source=source, row=jsonl.loads(source),
        )  # fmt: skip
        if kind == "measured":
            return record(attempt, Completed(answer=Answer(response={}, text=""), verdict=Verdict(reward=1.0)), 0.1)
        failure = Failure(failure_class=FailureClass.AGENT_RUN_ERROR, reason="scripted", terminal=kind == "terminal")
        return record(attempt, failure, 0.1)

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
TestShardMachine = ShardMachine.TestCase
