"""A history says the same whichever way its events came, and whether or not it remembers where rows stand."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

import collector
from collector.formats.events import Dispatched, Event, Failed, OmittedEvent, SessionEnded, SessionStarted, Success
from collector.state.codes import Place
from collector.state.history import History
from collector.state.scores import Scores

ROLLOUTS = 3
INDEX = {f"{n}-0": n for n in range(ROLLOUTS)}
TURN = st.tuples(
    st.integers(0, ROLLOUTS - 1),
    st.sampled_from(["score", "late", "masked", "unscored", "cut", "fail", "omit", "die", "session"]),
)


def journal(turns: Sequence[tuple[int, str]]) -> list[Event]:
    """A journal in which each turn dispatches its rollout anew, and has it end in that way."""
    session, seq = 0, 1
    found: list[Event] = [SessionStarted(run_id="r", session=0, seq=0, at="0", reason="fresh", host="n1", pid=1)]
    attempts, ends = [0] * ROLLOUTS, {"rollouts": 0, "failures": 0}

    def place(file: str) -> dict[str, Any]:
        ends[file] += 10
        return {"offset": ends[file] - 10, "length": 10, "checksum": len(found)}

    for rollout, end in turns:
        common: dict[str, Any] = {"run_id": "r", "session": session, "at": str(len(found))}
        if end == "session":
            found.append(SessionEnded(**common, seq=seq, reason="final"))
            session, seq = session + 1, 1
            found.append(SessionStarted(**{**common, "session": session}, seq=0, reason="resume", host="n1", pid=1))
            continue
        who = {"rollout_id": f"{rollout}-0", "attempt_index": attempts[rollout]}
        attempts[rollout] += 1
        found.append(Dispatched(**common, **who, seq=seq))
        seq += 1
        if end == "fail":
            words = {"failure_class": "c", "kind": None, "terminal": False, "reason": ""}
            found.append(Failed(**common, **who, **place("failures"), **words, seq=seq, elapsed_s=0.5))
        elif end == "omit":
            found.append(OmittedEvent(**common, **who, seq=seq, reason=""))
        elif end != "die":
            reward = None if end == "unscored" else rollout / 3
            elapsed_s = None if end == "late" else 1.5
            found.append(
                Success(
                    **common, **who, **place("rollouts"), seq=seq, reward=reward, elapsed_s=elapsed_s,
                    masked=end == "masked", truncated=end == "cut",
                )
            )  # fmt: skip
        seq += end != "die"
    return found


def facts(history: History) -> dict[str, Any]:
    kept = {name: value for name, value in vars(history).items() if name not in {"_scores", "main", "sidecar"}}
    files = [dataclasses.asdict(ranges) for ranges in (history.main, history.sidecar)]
    # NaN is not itself.
    return {name: repr(value) for name, value in kept.items()} | {"files": repr(files)}


@given(turns=st.lists(TURN, max_size=40))
def test_a_block_of_events_says_what_its_events_say_one_by_one(turns: list[tuple[int, str]]) -> None:
    events = journal(turns)
    whole, single = History(ROLLOUTS), History(ROLLOUTS)

    whole.fold(events, INDEX, "r")
    for event in events:
        if isinstance(event, SessionStarted | SessionEnded):
            single.fold([event], INDEX, "r")
        else:
            single._seqs[event.session] = event.seq + 1
            single.apply(event, INDEX[event.rollout_id])

    assert facts(whole) == facts(single)


@given(turns=st.lists(TURN, max_size=40), forgotten_after=st.integers(0, 80))
def test_forgetting_rows_changes_no_state_no_score_and_no_place_of_a_failure(
    turns: list[tuple[int, str]], forgotten_after: int
) -> None:
    events = journal(turns)
    whole, light = History(ROLLOUTS), History(ROLLOUTS)

    whole.fold(events, INDEX, "r")
    light.fold(events[:forgotten_after], INDEX, "r")
    light.forget_rows()
    light.fold(events[forgotten_after:], INDEX, "r")

    assert [light.past(n) for n in range(ROLLOUTS)] == [whole.past(n) for n in range(ROLLOUTS)]
    open_ones = [n for n in range(ROLLOUTS) if whole.past(n).state in {"unknown", "failed", "never_dispatched"}]
    # A rollout is not dispatched after it completed, so only a journal of another program has a result to forget.
    if all(turn[1] in {"fail", "die", "session"} for turn in turns):
        assert [light.failure_place(n) for n in open_ones] == [whole.failure_place(n) for n in open_ones]


def test_a_failure_stays_in_place_through_interruptions_after_rows_are_forgotten() -> None:
    light = History(ROLLOUTS, keeps_rows=False)

    light.fold(journal([(1, "fail"), (1, "die"), (1, "die")]), INDEX, "r")

    assert light.failure_place(1) == Place(0, 10, 2)
    assert light.failure_place(0) is None


@given(st.lists(st.floats(-1e300, 1e300), max_size=50))
def test_scores_add_up_without_rounding_in_whatever_order(rewards: list[float]) -> None:
    scores = Scores.of(rewards)

    assert scores.total == (math.fsum(rewards) if rewards else None)
    assert Scores.of(rewards[::-1]).total == scores.total
    assert (scores.low, scores.high, scores.count) == (min(rewards, default=None), max(rewards, default=None), len(rewards))


def test_results_of_a_live_session_take_no_memory() -> None:
    count = 2000
    history = History(count, keeps_rows=False)
    index = {f"{n}-0": n for n in range(count)}
    common: dict[str, Any] = {"run_id": "r", "session": 0, "at": ""}
    history.fold([SessionStarted(**common, seq=0, reason="fresh", host="n1", pid=1)], {}, "r")
    # Other threads of the test's process allocate meanwhile: only these lines and the collector's count.
    own = [tracemalloc.Filter(True, name) for name in (__file__, str(Path(collector.__file__).parent / "*"))]
    tracemalloc.start()

    for rollout_id, position in index.items():
        history.apply(Dispatched(**common, seq=0, rollout_id=rollout_id, attempt_index=0), position)
        row = {"rollout_id": rollout_id, "attempt_index": 0, "offset": 10 * position, "length": 10, "checksum": 1}
        history.apply(Success(**common, **row, seq=0, reward=position / 7, elapsed_s=1.0), position)
    grown = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(own).traces)
    tracemalloc.stop()

    assert history.scores().count == count
    # Less than one word a result: what does not grow with them.
    assert grown < 8 * count
