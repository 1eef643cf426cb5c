"""Rows that look alike to the checks are evaluated once: what was seen before must decide nothing about a row."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from merge.health.checks import Check
from merge.health.digest import Digester
from merge.health.table import Table
from merge.health.tasks import arrange
from tests.health.rows import response, row, traced

TEXT = st.sampled_from(["", " \n", "four", "naïve \u2028", "\ud800"])
COUNT = st.sampled_from([0, 1, 7, None, True, 2.0, -1, 1 << 40, (1 << 40) + 1, 10**30, "5"])
STATUS = st.sampled_from(["completed", "incomplete", "failed", None, 5, []])
ERROR = st.sampled_from([None, {}, {"code": "server_error"}, {"message": "m"}, "timeout", 0])
DETAILS = st.sampled_from([None, {}, {"reason": "max_output_tokens"}, {"reason": "content_filter"}])
NAMES = st.sampled_from(["r0", "r1", None, ""])
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", None, [], {}]),
        "role": st.sampled_from(["assistant", "user", None, [], {}]),
        "content": st.one_of(TEXT, st.lists(st.fixed_dictionaries({"text": TEXT}), max_size=2)),
        "tool_calls": st.sampled_from([None, [], [{}]]),
    },
)
CHOICE = st.fixed_dictionaries({"message": ITEM, "finish_reason": st.sampled_from(["stop", "length", None])})
RESPONSE = st.fixed_dictionaries(
    {},
    optional={
        "id": NAMES,
        "status": STATUS,
        "error": ERROR,
        "incomplete_details": DETAILS,
        "output": st.one_of(st.lists(ITEM, max_size=3), TEXT),
        "usage": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"input_tokens": COUNT, "output_tokens": COUNT})),
        "choices": st.one_of(st.none(), st.lists(CHOICE, max_size=2)),
        "output_text": TEXT,
    },
)
ROW = st.builds(lambda answer: row(response=answer), st.one_of(RESPONSE, st.none(), TEXT))
IGNORED = st.frozensets(st.sampled_from([Check.HOLLOW_TURN, Check.RUNAWAY_GENERATION, Check.UNREADABLE]))
HOLLOW = frozenset({Check.HOLLOW_TURN})
#: Each differs from a clean row in one thing that a check looks at.
ONE_CHANGE = [
    row(response=response(**changed))
    for changed in (
        {"output": []},
        {"output": [{"type": "function_call"}]},
        {"status": "failed"},
        {"error": {"code": "server_error"}},
        {"usage": {"input_tokens": 5, "output_tokens": 0}},
        {"usage": {"input_tokens": 5}},
        {"usage": {"input_tokens": 0, "output_tokens": 2}},
        {"usage": {"output_tokens": 2}},
    )
]


def digest(rows: list[dict[str, Any]], ignored: frozenset[Check]) -> Digester:
    digester = Digester("rollouts.jsonl", "line", ignored)
    for number, each in enumerate(rows, start=1):
        digester.add(json.dumps(each).encode(), number)
    return digester


@given(st.lists(ROW, max_size=12), IGNORED)
@example([row(), row(response=response("", id="r0")), row(response=response("", id="r1"))], frozenset())
@example([row(response=None), traced(), row(), row(response=None)], frozenset())
@example([row(), *ONE_CHANGE], frozenset())
@example([row(response=response("")), row(response=response("", incomplete_details={"reason": "length"}))], HOLLOW)
def test_a_row_comes_out_as_it_would_alone(rows: list[dict[str, Any]], ignored: frozenset[Check]) -> None:
    alone = [digest([each], ignored) for each in rows]

    together = digest(rows, ignored)

    assert together.table.outcomes == [outcome for one in alone for outcome in one.table.outcomes]
    assert together.tally.prompt == sum(one.tally.prompt for one in alone)
    assert together.tally.completion == sum(one.tally.completion for one in alone)
    assert together.tally.issues.total() == sum(one.tally.issues.total() for one in alone)
    assert sum(together.tally.blind.values()) == len(rows)


def test_rows_without_findings_share_one_outcome() -> None:
    rows = [row(i, response=response(id=f"r{i}", usage={"input_tokens": i, "output_tokens": i})) for i in range(1, 9)]

    outcomes = digest([*rows, *map(traced, range(8))], frozenset()).table.outcomes

    assert len(outcomes) == 16
    assert [len(set(map(id, some))) for some in (outcomes[:8], outcomes[8:])] == [1, 1]


NAME = st.one_of(st.none(), st.integers(-3, 3), st.just((1 << 62) - 1), st.sampled_from(["a", "1", ""]))


def standing(name: int | str | None) -> tuple[int, int, str]:
    """Numbers, then names, then nothing."""
    match name:
        case int():
            return (0, name, "")
        case str():
            return (1, 0, name)
        case None:
            return (2, 0, "")


@given(st.lists(st.tuples(NAME, NAME, NAME), max_size=12))
def test_rows_are_arranged_by_task_then_repeat_then_stage_and_else_as_they_stood(names: list[tuple[Any, Any, Any]]) -> None:
    outcomes = digest([row() for _ in names], frozenset()).table.outcomes
    ids = [str(i) for i in range(len(names))]
    table = Table([n[0] for n in names], [n[1] for n in names], [n[2] for n in names], list(ids), outcomes)
    expected = sorted(range(len(names)), key=lambda i: list(map(standing, names[i])))

    arrange(table)

    assert table.rollout_ids == [ids[i] for i in expected]
    assert list(zip(table.tasks, table.repeats, table.stages, strict=True)) == [names[i] for i in expected]
