"""Whatever JSON a server gives: an outcome that can be recorded and read back, or a reply that is called unusable."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector import jsonl
from collector.agents.nemo_gym.reply import episode_outcome_of, outcome_of
from collector.formats import rows
from collector.formats.record import Attempt, record
from collector.outcomes import Completed, Failure, Omitted, ServedBy
from tests.support.nemo_stub import response_of

ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0, "expected": 5, "responses_create_params": {"input": "?"}}
REQUEST = {"episode_id": {"rollout_id": "0-0", "attempt": 0}, "task": {"task_id": {"taskset": "t", "task_id": "1"}}}
SERVER = ServedBy(server="s", result_type="t", task_id={"taskset": "t"})

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
responses = st.just(response_of("5")) | st.fixed_dictionaries(
    {},
    optional={
        "output": anything | st.lists(st.fixed_dictionaries({"type": st.just("message"), "content": anything})),
        "incomplete_details": anything,
    },
)
NAMES = ["reward", "mask_sample", "failure_kind", "failure_reason", "execute_only", "_ng_no_persist", "_ng_failure_class"]
NAMES += ["_ng_failure_terminal", "_ng_failure_message", "_ng_failure_judge_error", "_ng_failure_record", "_ng_run_id", "error"]
NAMES += ["reuse_cached_deliverable", "_ng_task_index", "_ng_attempt_index", "expected", "agent_ref", "ng_perf"]
replies = st.builds(
    lambda known, other, response: {**other, **known, **response},
    st.dictionaries(st.sampled_from(NAMES), anything, max_size=6),
    st.dictionaries(st.text(max_size=5), anything, max_size=3),
    st.just({}) | st.fixed_dictionaries({"response": responses | anything}),
)
failures = st.fixed_dictionaries(
    {},
    optional={
        "failure_reason": anything,
        "terminal": anything,
        "failure_kind": anything,
        "stage": anything,
        "partial_response": anything,
    },
)


def recorded(outcome: Completed | Failure | Omitted) -> None:
    source = jsonl.dumps(ROW) + b"\n"
    attempt = Attempt(index=0, number=1, rollout_id="0-0", run_id="r", session=2, source=source, row=dict(ROW))
    line = record(attempt, outcome, 0.1).line
    if line is None:
        return
    stamp = rows.parse_stamp(line)
    assert (stamp.rollout_id, stamp.attempt, stamp.run_id, stamp.session) == ("0-0", 1, "r", 2)
    saved = jsonl.loads(line)
    assert saved["_ng_environment_server"] == "s"
    if stamp.failure_class is None:
        rows.parse_verdict(line)
    else:
        rows.parse_failure(line)
        assert "reward" not in saved


@settings(max_examples=400, deadline=None)
@given(replies | anything)
def test_any_reply_to_a_flat_row_is_recorded_or_unusable(reply: Any) -> None:
    try:
        outcome = outcome_of(reply, SERVER)
    except ValueError:
        return
    recorded(outcome)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.fixed_dictionaries({"result": replies | anything}), st.fixed_dictionaries({"failure": failures | anything}), anything
    )
)
def test_any_reply_to_an_episode_is_recorded_or_unusable(reply: Any) -> None:
    given_reply = (
        {"episode_id": REQUEST["episode_id"], "task_id": REQUEST["task"]["task_id"], **reply}
        if isinstance(reply, dict)
        else reply
    )
    try:
        outcome = episode_outcome_of(given_reply, REQUEST, SERVER)
    except ValueError:
        return
    recorded(outcome)
