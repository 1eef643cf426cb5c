"""Rollouts that are counted together count as each of them would alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from collector.formats.events import Dispatched, Event, Failed, OmittedEvent, SessionStarted, Success
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from collector.state.coverage import count
from collector.state.history import History
from collector.state.retry import is_exhausted_by_interruption, is_suspect, is_terminal, may_dispatch, state_under
from tests.collector.shards import RUN_ID, prepare, settings_for, write_dataset

ROLLOUTS = 5
ENDS = st.lists(st.sampled_from(["die", "fail", "give-up", "skip", "score", "omit"]), max_size=4)
RETRY = st.builds(
    RetrySettings,
    max_attempts=st.integers(1, 4),
    max_interruptions=st.none() | st.integers(0, 3),
    retry_terminal_timeouts=st.booleans(),
)
CLASSES = {"fail": "c", "give-up": "timeout_exceeded", "skip": "skipped"}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> RolloutStore:
    directory: Path = tmp_path_factory.mktemp("shard")
    write_dataset(directory / "tasks.jsonl", [{"n": n} for n in range(ROLLOUTS)])
    return RolloutStore.read(prepare(settings_for(directory)))


def history_of(pasts: list[list[str]]) -> History:
    """Each rollout tried as often as it has ends, and ended that way each time."""
    common: dict[str, Any] = {"run_id": RUN_ID, "session": 0, "at": "0"}
    events: list[Event] = [SessionStarted(**common, seq=0, reason="fresh", host="h", pid=1)]
    offsets = Counter[str]()
    for rollout, ends in enumerate(pasts):
        for attempt, end in enumerate(ends):
            who = {**common, "rollout_id": f"{rollout}-0", "attempt_index": attempt}
            events.append(Dispatched(**who, seq=len(events)))
            file = "rollouts" if end == "score" else "failures"
            place = {"offset": offsets[file], "length": 10, "checksum": 1}
            if end == "omit":
                events.append(OmittedEvent(**who, seq=len(events), reason=""))
            elif end == "score":
                offsets[file] += 10
                events.append(Success(**who, **place, seq=len(events), reward=1))
            elif end in CLASSES:
                offsets[file] += 10
                said = {"failure_class": CLASSES[end], "kind": None, "terminal": end != "fail", "reason": ""}
                events.append(Failed(**who, **place, **said, seq=len(events)))
    history = History(ROLLOUTS)
    history.fold(events, {f"{n}-0": n for n in range(ROLLOUTS)}, RUN_ID)
    return history


@given(pasts=st.lists(ENDS, min_size=ROLLOUTS, max_size=ROLLOUTS), retry=RETRY)
def test_the_counts_are_those_of_the_rollouts_one_by_one(
    shard: RolloutStore, pasts: list[list[str]], retry: RetrySettings
) -> None:
    history = history_of(pasts)

    found = count(history, shard.manifest, shard.inventory, retry)

    alone = [history.past(n) for n in range(ROLLOUTS)]
    states = Counter(state_under(past, retry) for past in alone)
    failed = [past for past in alone if state_under(past, retry).value == "failed"]
    assert found.states == {state: states[state] for state in found.states}
    assert found.failed_terminally == sum(is_terminal(past, retry) for past in failed)
    assert found.exhausted_by_interruption == sum(is_exhausted_by_interruption(past, retry) for past in alone)
    assert found.unfinished == sum(may_dispatch(past, retry) for past in alone)
    assert found.suspects == [f"{n}-0" for n, past in enumerate(alone) if is_suspect(past)]
