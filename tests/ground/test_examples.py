"""What the quickstart stands on: its questions are well formed and its model is real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirements import require
from tests.support.small_model import PROGRAM, SmallModel, missing_packages, serve_small_model

DATA = PROGRAM.parent / "data"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def ask(model: SmallModel, question: str, max_tokens: int = 24) -> str:
    """The model's answer to one question at temperature 0."""
    messages = [{"role": "user", "content": question}]
    body = {"model": model.name, "temperature": 0, "max_tokens": max_tokens, "messages": messages}
    request = urllib.request.Request(f"{model.base_url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=40) as reply:
        return json.loads(reply.read())["choices"][0]["message"]["content"]


def ask_in_vain(model: SmallModel) -> None:
    with suppress(OSError, HTTPException):
        ask(model, "Tell me a very long story.", max_tokens=1500)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("arithmetic.jsonl", ["expected_answer", "id", "question"], id="arithmetic"),
        pytest.param("multiple_choice.jsonl", ["expected_answer", "id", "options", "question"], id="multiple-choice"),
    ],
)
def test_every_question_has_the_same_fields_and_a_name_of_its_own(name: str, fields: list[str]) -> None:
    questions = rows(name)

    assert len(questions) >= 48
    assert all(sorted(row) == fields for row in questions)
    assert len({row["id"] for row in questions}) == len({row["question"] for row in questions}) == len(questions)


def test_every_arithmetic_answer_is_a_whole_number() -> None:
    assert all(row["expected_answer"].isdecimal() for row in rows("arithmetic.jsonl"))


def test_always_answering_the_same_letter_scores_a_quarter() -> None:
    questions = rows("multiple_choice.jsonl")
    counts = Counter(row["expected_answer"] for row in questions)

    assert {tuple(row["options"]) for row in questions} == {("A", "B", "C", "D")}
    assert set(counts.values()) == {len(questions) // 4}


@pytest.mark.model
def test_the_small_model_can_add(small_model: SmallModel) -> None:
    assert "5" in ask(small_model, "What is 2+3?")


@pytest.mark.model
def test_the_small_model_is_served_under_its_own_name(small_model: SmallModel) -> None:
    with urllib.request.urlopen(f"{small_model.base_url}/models", timeout=10) as reply:
        listed = json.loads(reply.read())

    assert [entry["id"] for entry in listed["data"]] == ["smollm2-135m"]


@pytest.mark.model
def test_the_small_model_says_the_same_twice_at_temperature_zero(small_model: SmallModel) -> None:
    question = rows("arithmetic.jsonl")[0]["question"]

    assert ask(small_model, question) == ask(small_model, question)


@pytest.mark.model
@pytest.mark.parametrize("is_loading", [pytest.param(True, id="while-it-loads"), pytest.param(False, id="while-it-answers")])
def test_the_small_model_ends_at_once_on_sigterm(tmp_path: Path, *, is_loading: bool) -> None:
    require("the small model", missing_packages())
    with serve_small_model(tmp_path, is_awaited=not is_loading) as model:
        talk = None if is_loading else threading.Thread(target=ask_in_vain, args=(model,))
        if talk:
            talk.start()
        time.sleep(0.3)
        model.process.terminate()
        code = model.process.wait(2)
        if talk:
            talk.join()

    assert code == -signal.SIGTERM


@pytest.mark.model
def test_a_taken_port_ends_the_program(small_model: SmallModel) -> None:
    port = small_model.base_url.rsplit(":", 1)[1].removesuffix("/v1")
    done = subprocess.run([sys.executable, PROGRAM, f"--port={port}"], capture_output=True, check=False, timeout=40)

    assert done.returncode == 1
