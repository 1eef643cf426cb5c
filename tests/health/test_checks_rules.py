"""Each check with a row that it is about and with one that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.errors import RequestError
from merge.health.checks import Check, parse_ignored
from tests.health.rows import call, check, issues, response, row, traced, turn, verdicts

LENGTH = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
TOOL = [{"type": "function_call", "name": "f", "arguments": "{}", "call_id": "x"}]
JUDGE = {"type": "openai", "name": "judge"}

TRIGGERS: list[Any] = [
    pytest.param([b'{"a": \n'], Check.UNREADABLE, id="half-a-line"),
    pytest.param([b"[1]\n"], Check.UNREADABLE, id="a-list"),
    pytest.param([b"\xff\xfe\n"], Check.UNREADABLE, id="no-utf-8"),
    pytest.param([row(ng_trajectory=[1])], Check.UNREADABLE, id="trajectory-is-a-list"),
    pytest.param([traced(turns=["x"])], Check.UNREADABLE, id="turn-is-a-text"),
    pytest.param([row(), row()], Check.DUPLICATE_IDENTITY, id="one-rollout-twice"),
    pytest.param([traced(turns=[])], Check.MISSING_AGENT_TURNS, id="no-turns"),
    pytest.param([traced(turns=[turn(1, answer=" ")])], Check.MISSING_AGENT_TURNS, id="turns-without-activity"),
    pytest.param(
        [traced(model_calls=[call(metadata={"status_code": 503})])], Check.ENDED_ON_FAILED_CALL, id="only-call-failed"
    ),
    pytest.param(
        [traced(model_calls=[call("c0"), call("c1", started_at=2.0, metadata={"error_category": "timeout"})])],
        Check.ENDED_ON_FAILED_CALL,
        id="last-call-failed",
    ),
    pytest.param(
        [traced(model_calls=[call(metadata={"status_code": 500}), call("j", started_at=9.0, metadata={"model_ref": JUDGE})])],
        Check.ENDED_ON_FAILED_CALL,
        id="a-judge-answered-after-it",
    ),
    pytest.param([row(response=response(" \n"))], Check.HOLLOW_TURN, id="blank-answer"),
    pytest.param([row(response=response(output=[]))], Check.HOLLOW_TURN, id="no-output"),
    pytest.param([traced(turns=[turn(1, "c0"), turn(2, answer=None)])], Check.HOLLOW_TURN, id="second-turn-is-empty"),
    pytest.param(
        [row(response=response(usage={"input_tokens": 5, "output_tokens": 0}))], Check.ZERO_COMPLETION_TOKENS, id="zero-tokens"
    ),
    pytest.param(
        [traced(model_calls=[call(tokens={"completion_tokens": 0})])], Check.ZERO_COMPLETION_TOKENS, id="zero-tokens-captured"
    ),
    pytest.param([row(response=response(usage=None))], Check.MISSING_TOKEN_COUNTS, id="no-usage"),
    pytest.param(
        [row(response=response(usage={"input_tokens": True, "output_tokens": 2}))],
        Check.MISSING_TOKEN_COUNTS,
        id="bool-as-count",
    ),
    pytest.param(
        [traced(model_calls=[call(tokens={"prompt_tokens": None})])], Check.MISSING_TOKEN_COUNTS, id="no-prompt-count"
    ),
    pytest.param([traced(turns=[turn(1, "c0", "lost")])], Check.CAPTURE_MISMATCH, id="call-not-captured"),
    pytest.param([traced(model_calls=[call(), call()])], Check.CAPTURE_MISMATCH, id="call-captured-twice"),
    pytest.param(
        [traced(gaps=[{"code": "model_call_reference_conflict", "detail": "call:c9"}])], Check.CAPTURE_MISMATCH, id="conflict"
    ),
    pytest.param([row(response=response(status="failed"))], Check.CALL_FAILED, id="status-failed"),
    pytest.param([row(response=response(error={"code": "server_error"}))], Check.CALL_FAILED, id="error-object"),
    pytest.param([traced(model_calls=[call(metadata={"status_code": 404})])], Check.CALL_FAILED, id="http-404"),
    pytest.param(
        [traced(model_calls=[call(tokens={"completion_tokens": 3})])], Check.TOKEN_COUNT_MISMATCH, id="usage-is-not-the-sum"
    ),
    pytest.param([row(response=response("", **LENGTH))], Check.RUNAWAY_GENERATION, id="cut-off-and-empty"),
    pytest.param(
        [traced(model_calls=[call(metadata={"finish_reason": "length"}, response=response(""))])],
        Check.RUNAWAY_GENERATION,
        id="cut-off-and-empty-captured",
    ),
    pytest.param(
        [row(0, 0, response=response("")), row(0, 1, response=response(""))], Check.TASK_UNHEALTHY, id="both-repeats-are-bad"
    ),
    pytest.param(
        [traced(model_calls=[call(metadata={"status_code": 500})])], Check.TASK_WITHOUT_SUCCESS, id="no-call-succeeded"
    ),
]

CLEAN: list[Any] = [
    pytest.param([row()], id="answer"),
    pytest.param([traced()], id="traced-answer"),
    pytest.param([row(response=response(output=TOOL))], id="tool-call-is-no-hollow-turn"),
    pytest.param([row(response=response("half", **LENGTH))], id="cut-off-with-text"),
    pytest.param([row(response=response(output=TOOL, **LENGTH))], id="cut-off-with-tool-call"),
    pytest.param([row(0, 0), row(0, 1), row(1, 0)], id="repeats-are-no-duplicates"),
    pytest.param([row(stage_index=0), row(stage_index=1)], id="stages-are-no-duplicates"),
    pytest.param([{"response": response()}, {"response": response()}], id="rows-without-identity"),
    pytest.param([row(response=response("\ud800"))], id="lone-surrogate"),
    pytest.param([row(big=10**40)], id="long-integer"),
    pytest.param([b"\n", row(), b"  \n"], id="blank-lines"),
    pytest.param(
        [row(response={"choices": [{"message": {"content": "four"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})],
        id="chat-completion",
    ),
]


@pytest.mark.parametrize(("rows", "wanted"), TRIGGERS)
def test_a_check_finds_what_it_is_about(rows: list[object], wanted: Check, tmp_path: Path) -> None:
    report = check(tmp_path, *rows)

    assert issues(report)[wanted] >= 1
    assert Check.EXECUTION_ERROR not in issues(report)
    in_rows = {finding["check"] for one in verdicts(report) for finding in one["findings"]}
    assert wanted in in_rows or any(wanted in task["flags"] for task in report.summary["tasks"].values())


@pytest.mark.parametrize("rows", CLEAN)
def test_rows_without_faults_have_no_finding(rows: list[object], tmp_path: Path) -> None:
    report = check(tmp_path, *rows)

    assert issues(report) == {}
    assert report.summary["run"]["verdicts"]["unhealthy"] == 0


def test_every_check_that_rows_can_trigger_is_triggered_here() -> None:
    triggered = {param.values[1] for param in TRIGGERS}

    # Nothing that a row can hold makes a rule raise; the test below gives it a rule that does.
    assert set(Check) - triggered == {Check.EXECUTION_ERROR}


def test_a_rule_that_raises_is_a_finding_and_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from merge.health import digest, rules

    def broken(evidence: object) -> list[rules.Finding] | None:
        raise ValueError("a bug")

    monkeypatch.setattr(digest, "RULES", {**rules.RULES, Check.CALL_FAILED: broken})

    report = check(tmp_path, row(response=response("")))

    assert issues(report) == {Check.EXECUTION_ERROR: 1, Check.HOLLOW_TURN: 1}
    assert Check.CALL_FAILED in verdicts(report)[0]["unobserved"]


def test_a_row_with_a_whole_trajectory_is_healthy(tmp_path: Path) -> None:
    report = check(tmp_path, traced())

    assert verdicts(report) == [
        {
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
            "rollout_id": "0-0",
            "verdict": "healthy",
            "findings": [],
            "unobserved": [],
        }
    ]


def test_a_row_with_only_a_response_is_unobserved_and_never_healthy(tmp_path: Path) -> None:
    (verdict,) = verdicts(check(tmp_path, row()))

    assert verdict["verdict"] == "unobserved"
    assert verdict["unobserved"] == [
        Check.MISSING_AGENT_TURNS,
        Check.ENDED_ON_FAILED_CALL,
        Check.CAPTURE_MISMATCH,
        Check.TOKEN_COUNT_MISMATCH,
    ]


@pytest.mark.parametrize(
    ("gap", "blind"),
    [
        ("trajectory_projection_failed", Check.HOLLOW_TURN),
        ("turns_unavailable", Check.MISSING_AGENT_TURNS),
        ("model_calls_unavailable", Check.CALL_FAILED),
        ("turn_model_call_scope_incomplete", Check.TOKEN_COUNT_MISMATCH),
    ],
)
def test_what_the_recorder_missed_is_unobserved(gap: str, blind: Check, tmp_path: Path) -> None:
    (verdict,) = verdicts(check(tmp_path, traced(gaps=[{"code": gap}])))

    assert verdict["verdict"] == "unobserved"
    assert blind in verdict["unobserved"]


def test_calls_without_times_have_no_last_one(tmp_path: Path) -> None:
    calls = [call("c0", started_at=None), call("c1", started_at=None, metadata={"status_code": 500})]

    report = check(tmp_path, traced(model_calls=calls))

    assert Check.ENDED_ON_FAILED_CALL not in issues(report)


def test_a_call_that_failed_and_was_repeated_ends_well(tmp_path: Path) -> None:
    calls = [call("c1", started_at=0.5, metadata={"status_code": 500}), call("c0")]

    assert issues(check(tmp_path, traced(model_calls=calls))) == {}


def test_ignored_checks_decide_no_verdict_and_are_counted_as_ignored(tmp_path: Path) -> None:
    report = check(tmp_path, row(response=response("")), ignored={Check.HOLLOW_TURN})

    assert issues(report) == {}
    assert report.summary["run"]["ignored_checks"] == ["agent_turn_hollow"]
    assert report.summary["run"]["artifacts"]["coverage"]["agent_turn_hollow"] == {
        "evaluated": 0,
        "unobserved": 0,
        "ignored": 1,
    }


def test_an_unknown_check_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RequestError, match="Did you mean agent_turn_hollow"):
        parse_ignored("agent_turn_holow,record_unreadable")


def test_counts_of_each_check_add_up_to_the_rows(tmp_path: Path) -> None:
    report = check(tmp_path, row(0), traced(1), b"x\n", row(2, response=None))

    coverage = report.summary["run"]["artifacts"]["coverage"]
    assert {sum(counts.values()) for name, counts in coverage.items() if not name.startswith("task_")} == {4}
    assert sum(report.summary["run"]["verdicts"].values()) == len(verdicts(report)) == 4


def test_reports_hold_no_long_text_of_a_row(tmp_path: Path) -> None:
    huge = "x" * 5_000_000
    rows = [row(_ng_rollout_id=huge), traced(1, model_calls=[call(metadata={"error_category": huge})])]

    report = check(tmp_path, *rows)

    assert report.verdicts.stat().st_size < 5_000
    assert report.health.stat().st_size < 10_000


@pytest.mark.parametrize("strange", [[], {}, [[1]], {"a": 1}], ids=str)
@pytest.mark.parametrize("member", ["type", "role"])
def test_an_item_of_an_answer_may_have_anything_where_words_are_expected(member: str, strange: object, tmp_path: Path) -> None:
    """One such item ended the check of the whole file."""
    item = {"content": [{"text": "four"}], member: strange}

    report = check(tmp_path, row(response=response(output=[item])), traced(1, model_calls=[call(response={"output": [item]})]))

    assert issues(report) == {}
    assert [verdict["_ng_task_index"] for verdict in verdicts(report)] == [0, 1]


@pytest.mark.parametrize("name", ["_ng_task_index", "_ng_rollout_index", "stage_index"])
def test_a_truth_value_is_no_number_of_a_row_but_its_name(name: str, tmp_path: Path) -> None:
    """One such row ended the check of the whole file."""
    first, second = verdicts(check(tmp_path, row(**{name: 1}), row(**{name: True})))

    assert (first[name], second[name]) == (1, "True")


@pytest.mark.parametrize("depth", [400, 900, 970, 980, 985, 990, 995, 1000, 1100, 5000])
@pytest.mark.parametrize(
    "around",
    [
        b'{"_ng_task_index": %b}',
        b'{"stage_index": %b}',
        b'{"response": {"error": {"code": %b}}}',
        b'{"response": {"output": %b}}',
        b'{"ng_trajectory": {"turns": [{"turn_no": %b}]}}',
        b'{"ng_trajectory": {"gaps": [{"code": "model_call_reference_conflict", "detail": %b}]}}',
    ],
    ids=["task", "stage", "error", "output", "turn", "gap"],
)
def test_lists_in_lists_cost_one_row_and_not_the_check(around: bytes, depth: int, tmp_path: Path) -> None:
    """What a parser could just read was too deep to be told, and that ended the check of the whole file."""
    report = check(tmp_path, around % (b"[" * depth + b"]" * depth) + b"\n", row(7))

    assert [verdict["verdict"] for verdict in verdicts(report)].count("unobserved") >= 1
    assert len(verdicts(report)) == 2


def test_copies_are_counted_for_each_rollout_by_itself(tmp_path: Path) -> None:
    rows = [row(0), row(0), row(0), row(0, 1), row(0, 2), row(0, 2), row(1), b"half\n", b"half\n", row(9), row(9)]

    found = verdicts(check(tmp_path, *rows))

    counts = [[finding["detail"].get("duplicate_count") for finding in verdict["findings"]] for verdict in found]
    assert counts == [[3], [3], [3], [], [2], [2], [], [2], [2], [None], [None]]
