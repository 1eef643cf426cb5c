"""Which answers are judged again, for histories of any shape: the journal's fold against the rule said in plain words."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.artifacts import RunArtifacts
from collector.reverify.answers import Kind
from collector.reverify.selection import Chooser, Mode
from collector.reverify.source import candidates_in
from collector.session import JobFacts, ShardSession
from collector.settings import RetrySettings
from collector.shard.lock import ShardLock
from collector.shard.store import RolloutStore
from tests.collector.regrading import one_attempt
from tests.collector.shards import prepare, settings_for, write_dataset

SAID = ["?", "jf(A)", "ji(A)", "jf", "jf(A)!", "agent"]
HISTORIES = st.lists(st.lists(st.sampled_from(SAID), max_size=5), min_size=1, max_size=6)
RETRIES = st.builds(RetrySettings, max_attempts=st.integers(1, 6), max_interruptions=st.one_of(st.none(), st.integers(0, 3)))


def is_judged(history: list[str], retry: RetrySettings) -> bool:
    """The rule: the latest recorded outcome kept an answer, it is not terminal where it is the latest of all, and a try is left."""
    recorded = [said for said in history if said != "?"]
    if not recorded or "(A)" not in recorded[-1]:
        return False
    if history[-1].endswith("!"):
        return False
    if retry.max_interruptions is None:
        return len(history) < retry.max_attempts
    return len(recorded) < retry.max_attempts and len(history) - len(recorded) <= retry.max_interruptions


def write(directory: Path, histories: list[list[str]]) -> RunArtifacts:
    """Attempt n of every rollout in session n, which is then killed."""
    write_dataset(directory / "tasks.jsonl", [{"n": n} for n in range(len(histories))])
    artifacts = prepare(settings_for(directory))

    async def session_of(number: int) -> None:
        with ShardLock(artifacts.lock) as lock:
            session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
            try:
                for index, history in enumerate(histories):
                    if number < len(history):
                        await one_attempt(session, index, history[number])
            finally:
                await session.abandon()

    for number in range(max(map(len, histories))):
        asyncio.run(session_of(number))
    return artifacts


@settings(deadline=None, max_examples=40)
@given(histories=HISTORIES, retry=RETRIES)
def test_the_latest_recorded_outcome_and_the_latest_state_decide(histories: list[list[str]], retry: RetrySettings) -> None:
    chooser = Chooser(Mode.JUDGE_FAILED_ONLY, retry)
    with tempfile.TemporaryDirectory() as directory:
        artifacts = write(Path(directory), histories)
        with RolloutStore.read(artifacts) as store:
            found = list(chooser.choose(candidates_in(store)))

    judged = [history for history, one in zip(histories, found, strict=True) if one.kind is Kind.UNJUDGED]
    assert judged == [history for history in histories if is_judged(history, retry)]
    assert chooser.chosen == len(judged)
    # Nobody is left out without a word.
    assert sum(chooser.counts.values()) == len(histories) - len(judged)
    assert all(one.trouble for one in found if one.kind is Kind.ABSENT)
