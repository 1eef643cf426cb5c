"""Functions of the user as graders."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError
from collector.outcomes import Failure, FailureKind, Verdict
from tests.verifiers.grading import grade, verifier_of

NAME = "tests.verifiers.test_python"
RETURNED: dict[str, Any] = {}


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ODD: dict[str, BaseException] = {
    "SystemExit: 3": SystemExit(3),
    "StopIteration: ": StopIteration(),
    "KeyboardInterrupt: ": KeyboardInterrupt(),
    "GeneratorExit: ": GeneratorExit(),
    "CancelledError: ": asyncio.CancelledError(),
    "WordlessError": WordlessError(),
}


def returned(row: dict[str, Any], text: str, response: dict[str, Any]) -> Any:
    del text, response
    return RETURNED[row["case"]]


def in_its_thread(row: dict[str, Any], text: str, response: dict[str, Any], *, bonus: float = 0) -> dict[str, Any]:
    del row
    return {
        "reward": 1 + bonus,
        "text": text,
        "keys": list(response),
        "main": threading.current_thread() is threading.main_thread(),
    }


async def awaited(row: dict[str, Any], text: str, response: dict[str, Any]) -> float:
    del row, text, response
    await asyncio.sleep(0)
    return 0.25


def raising(row: dict[str, Any], text: str, response: dict[str, Any]) -> float:
    del text, response
    return row["missing"]


def odd(row: dict[str, Any], text: str, response: dict[str, Any]) -> float:
    del text, response
    raise ODD[row["case"]]


async def odd_awaited(row: dict[str, Any], text: str, response: dict[str, Any]) -> float:
    return odd(row, text, response)


def sleeping(row: dict[str, Any], text: str, response: dict[str, Any]) -> float:
    del row, text, response
    time.sleep(40)
    return 1.0


def test_the_short_form_names_the_function_and_settings_reach_it() -> None:
    short = grade(f"python:{NAME}:in_its_thread", "hi")
    full = grade({"type": "python", "function": f"{NAME}:in_its_thread", "kwargs": {"bonus": 0.5}}, "hi")

    assert short == Verdict(reward=1.0, extra={"text": "hi", "keys": ["output"], "main": False})
    assert isinstance(full, Verdict)
    assert full.reward == 1.5


def test_a_coroutine_is_awaited() -> None:
    verdict = grade(f"python:{NAME}:awaited", "hi")

    assert isinstance(verdict, Verdict)
    assert verdict.reward == 0.25


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="nan"),
        pytest.param(float("inf"), id="inf"),
        pytest.param(True, id="bool"),
        pytest.param("0.5", id="text"),
        pytest.param(None, id="none"),
        pytest.param(10**400, id="beyond-float"),
        pytest.param({"score": 1}, id="dict-without-reward"),
        pytest.param({"reward": float("nan")}, id="dict-with-nan"),
        pytest.param({"reward": 1, "_ng_task_index": 3}, id="reserved-key"),
        pytest.param({"reward": 1, "response": {}}, id="key-of-the-row"),
        pytest.param({"reward": 1, "execute_only": True}, id="key-of-a-row-without-score"),
        pytest.param({"reward": 1, 5: 1}, id="key-that-is-no-text"),
        pytest.param(10**5000, id="more-digits-than-python-writes"),
        pytest.param({"reward": 1, "more": {1, 2}}, id="not-json"),
        pytest.param({"reward": 1, "more": float("nan")}, id="nan-beside"),
    ],
)
def test_what_is_no_score_is_a_failure_and_never_a_score(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setitem(RETURNED, "x", value)

    failure = grade(f"python:{NAME}:returned", "hi", case="x")

    assert isinstance(failure, Failure)
    assert failure.kind == FailureKind.VERIFIER_ERROR


def test_a_grader_that_raises_fails_its_own_answer() -> None:
    failure = grade(f"python:{NAME}:raising", "hi")

    assert isinstance(failure, Failure)
    assert "KeyError: 'missing'" in failure.reason


@pytest.mark.parametrize("case", ODD)
def test_whatever_a_grader_raises_fails_its_own_answer_at_once(case: str) -> None:
    """What ends a thread or a future, and no exception else, was told as a timeout a minute later."""
    failure = grade(f"python:{NAME}:odd", "hi", case=case)

    assert isinstance(failure, Failure)
    assert failure.reason == f"{NAME}:odd raised {case}"
    assert failure.exception_type == case.partition(":")[0]


@pytest.mark.parametrize("case", ["SystemExit: 3", "WordlessError"])
def test_a_coroutine_that_exits_fails_its_own_answer(case: str) -> None:
    """It ended the run without a word, with the exit code of its own choice."""
    failure = grade(f"python:{NAME}:odd_awaited", "hi", case=case)

    assert isinstance(failure, Failure)
    assert failure.reason == f"{NAME}:odd_awaited raised {case}"


def test_a_grader_that_does_not_end_fails_its_own_answer() -> None:
    started = time.monotonic()
    failure = grade({"type": "python", "function": f"{NAME}:sleeping", "timeout_s": 0.2}, "hi")

    assert isinstance(failure, Failure)
    assert "did not end within 0.2 s" in failure.reason
    assert time.monotonic() - started < 10


def test_a_changed_grader_is_another_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "my_grader.py"
    digests: list[Any] = []
    for line in ("return 1.0", "return 0.0"):
        source.write_text(f"def grade(row, text, response):\n    {line}\n", encoding="utf-8")
        monkeypatch.delitem(sys.modules, "my_grader", raising=False)
        digests.append(verifier_of("python:my_grader:grade").identity()["source_digest"])
    monkeypatch.delitem(sys.modules, "my_grader", raising=False)

    assert len(set(digests)) == 2


@pytest.mark.parametrize(
    ("function", "named"),
    [
        pytest.param("no_such_module:grade", "no_such_module", id="module"),
        pytest.param("json:no_such", "no_such", id="function"),
        pytest.param("json:__doc__", "not a function", id="no-function"),
        pytest.param("json", "verifier.function", id="no-colon"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_refused_before_the_run(function: str, named: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        verifier_of(f"python:{function}")

    assert named in str(refusal.value)
