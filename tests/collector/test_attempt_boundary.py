"""Whatever an agent or a verifier does, it costs its own rollout only, and what is saved can be read back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from collector import jsonl
from collector.agents.base import Agent, AgentSettings
from collector.artifacts import RunArtifacts
from collector.errors import DatasetError
from collector.formats import events, rows
from collector.formats.record import Attempt, Record, record
from collector.loop.attempt import run_attempt
from collector.outcomes import Answer, Completed, Failure, Verdict
from collector.verifiers.base import Verifier, VerifierSettings
from tests.collector.shards import fill, rows_of, settings_for, states, write_dataset

ROW: dict[str, Any] = {"responses_create_params": {"input": "?"}, "_ng_task_index": 0, "_ng_rollout_index": 0}


class Given(Agent[AgentSettings]):
    """Returns or raises what it was given."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def answer(self, row: dict[str, Any]) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value() if callable(self.value) else self.value


class Graded(Verifier[VerifierSettings]):
    """The same for a verdict."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def verify(self, row: dict[str, Any], answer: Answer) -> Any:
        return await Given(self.value).answer(row)


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Half(float):
    """A number of a library of its own, as numpy's are."""


def attempted(answer: Any, verdict: Any = None) -> Completed | Failure:
    return asyncio.run(run_attempt(ROW, Given(answer), Graded(verdict), limit_s=5))


def recorded(outcome: Completed | Failure, row: dict[str, Any] = ROW) -> Record:
    source = rows.inventory_line(row, 0, 0)
    attempt = Attempt(index=0, number=0, rollout_id="0-0", run_id="r", session=0, source=source, row=jsonl.loads(source))
    return record(attempt, outcome, 0.1)


ANSWER = Answer(response={"object": "response"}, text="four")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="nothing"),
        pytest.param("four", id="text"),
        pytest.param(asyncio.CancelledError(), id="a-cancellation-of-its-own"),
        pytest.param(WordlessError(), id="an-exception-without-words"),
        pytest.param(SystemExit(3), id="an-exit"),
        pytest.param(lambda: Answer(response={}, text=None), id="an-answer-without-text"),  # type: ignore[arg-type]
    ],
)
def test_a_bug_of_an_agent_fails_its_own_attempt(value: Any) -> None:
    outcome = attempted(value)

    assert isinstance(outcome, Failure)
    assert outcome.kind == "agent_run_error"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="nothing"),
        pytest.param(1.0, id="a-bare-number"),
        pytest.param(asyncio.CancelledError(), id="a-cancellation-of-its-own"),
        pytest.param(SystemExit(3), id="an-exit"),
        pytest.param(lambda: Verdict(reward=10**5000), id="more-digits-than-python-writes"),
        pytest.param(lambda: Verdict(reward=1.0, masked="yes"), id="a-flag-that-is-text"),  # type: ignore[arg-type]
        pytest.param(lambda: Verdict(reward=1.0, extra={"_ng_task_index": 7}), id="another-tasks-stamp"),
        pytest.param(lambda: Verdict(reward=None, extra={"reward": 0.7}), id="a-second-reward"),
        pytest.param(lambda: Verdict(reward=float("nan")), id="not-a-number"),
    ],
)
def test_a_bug_of_a_verifier_fails_its_own_attempt(value: Any) -> None:
    outcome = attempted(ANSWER, value)

    assert isinstance(outcome, Failure)
    assert outcome.kind == "verifier_error"


@pytest.mark.parametrize(("given", "saved"), [(Half(0.5), 0.5), (10**30, 1e30), (3, 3), (0.25, 0.25)])
def test_a_reward_of_any_number_type_is_saved_as_a_plain_number(given: float, saved: float) -> None:
    made = recorded(attempted(ANSWER, Verdict(reward=given)))

    event = events.parse(events.encode(made.draft))
    assert (event.reward, rows.parse_verdict(made.line).reward) == (saved, saved)  # type: ignore[union-attr]


def test_an_attempt_that_never_ends_is_given_up_at_its_limit() -> None:
    outcome = asyncio.run(run_attempt(ROW, _Hanging(), Graded(None), limit_s=0.05))

    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.kind, outcome.terminal) == ("timeout_exceeded", "agent_timeout", False)
    assert "0.05 s (timeouts.attempt_s)" in outcome.reason


class _Hanging(Given):
    def __init__(self) -> None:
        super().__init__(None)

    async def answer(self, row: dict[str, Any]) -> Any:
        await asyncio.Event().wait()


def test_a_hanging_task_ends_as_a_failure_while_the_others_are_measured(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1, "delay_s": 3600}, {"n": 1, "grade": 1}])
    settings = settings_for(tmp_path, timeouts={"attempt_s": 0.1}, retry={"max_attempts": 2})

    result = fill(settings)

    assert states(settings) == {"measured": 1, "exhausted": 1}
    assert result.coverage.failures_by_kind == {"agent_timeout": 1}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"reason": "said \ud800 and \0"}, id="lone-surrogates-in-the-reason"),
        pytest.param({"kind": "odd_\udfff"}, id="lone-surrogates-in-the-kind"),
        pytest.param({"http_status": 999}, id="a-status-that-is-none"),
        pytest.param({"response": {"value": object()}}, id="an-answer-without-json"),
        pytest.param({"response_body": "\ud800"}, id="lone-surrogates-in-the-body"),
    ],
)
def test_any_failure_can_be_recorded_and_read_back(more: dict[str, Any]) -> None:
    made = recorded(Failure(**{"failure_class": "agent_run_error", "reason": "x", **more}))

    stamp, saved = rows.parse_failure(made.line)
    assert (stamp.rollout_id, saved.failure.terminal) == ("0-0", False)
    assert events.parse(events.encode(made.draft)).run_id == "r"


def test_a_failure_whose_words_are_no_utf8_does_not_end_the_run(tmp_path: Path) -> None:
    path = write_dataset(
        tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1, "fail": 1, "reason": "SURROGATE"}, {"n": 1, "grade": 1}]
    )
    path.write_bytes(path.read_bytes().replace(b"SURROGATE", b"\\ud800"))
    settings = settings_for(tmp_path)

    fill(settings)

    assert states(settings) == {"measured": 2}


@pytest.mark.parametrize("key", ["reward", "response", "failure_kind", "failure_reason", "execute_only", "mask_sample"])
def test_keys_of_the_dataset_never_pass_for_a_result(tmp_path: Path, key: str) -> None:
    """A dataset with a ``reward`` of its own turned unscored answers into scores when their rows were recovered."""
    value = {"reward": 0.7, "response": {"output": []}}.get(key, "dataset")
    write_dataset(
        tmp_path / "tasks.jsonl",
        [{"n": 0, "grade": None, key: value}, {"n": 1, "grade": 1, "fail": 9, key: value}, {"n": 2, "grade": 1, key: value}],
    )
    settings = settings_for(tmp_path)

    fill(settings)

    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    saved = {row["n"]: row for row in rows_of(artifacts.rollouts)}
    assert "reward" not in saved[0]
    assert saved[0]["execute_only"] is True
    assert (saved[2]["reward"], saved[2]["mask_sample"]) == (1, False)
    assert all(row.get(key) != value for row in [*saved.values(), *rows_of(artifacts.failures)])


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [300, 1000, 5000])
def test_a_row_nested_too_deep_is_refused_by_name(tmp_path: Path, levels: int) -> None:
    path = write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    row = b'{"responses_create_params":{"input":"?"},"deep":' + b"[" * levels + b"]" * levels + b"}\n"
    path.write_bytes(path.read_bytes() + row)

    with pytest.raises(DatasetError, match=r"tasks.jsonl.*(nested deeper|depth limit)"):
        fill(settings_for(tmp_path))


@pytest.mark.parametrize("levels", [200, 300, 1000, 5000])
def test_an_answer_of_any_depth_is_saved_readable_or_fails_its_own_task(levels: int) -> None:
    made = recorded(attempted(Answer(response={"deep": deep(levels)}, text="x"), Verdict(reward=1.0)))

    assert rows.parse_stamp(made.line).rollout_id == "0-0"
    assert isinstance(made.draft, events.Success) is (levels < 250)


@pytest.mark.parametrize("metadata", ["text", {"extra_body": 3}, {"extra_body": "{"}, {"extra_body": "[]"}])
def test_a_seed_that_has_no_place_in_the_row_is_an_error_of_the_dataset(tmp_path: Path, metadata: Any) -> None:
    row = {"responses_create_params": {"input": "?", "metadata": metadata}, "grade": 1}
    write_dataset(tmp_path / "tasks.jsonl", [row])

    with pytest.raises(DatasetError, match=r"tasks.jsonl: task 0"):
        fill(settings_for(tmp_path, num_repeats_add_seed=True))
