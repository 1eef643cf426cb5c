"""The small real model as a judge of its own answers: real words, which are a verdict or are told to be none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collector.regrading import by_id
from tests.support import testkit
from tests.support.small_model import SmallModel

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

QUESTIONS = {"What is 2 plus 3?": "5", "What is the capital of France?": "Paris", "Name a colour of the sky.": "blue"}


def gym(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrate.cli.main", "eval", *words],
        env={**os.environ, **testkit.environment()},
        cwd=testkit.ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_real_judges_words_become_verdicts_and_the_same_again(small_model: SmallModel, tmp_path: Path) -> None:
    """Graded twice at temperature 0: each answer has one verdict or is named as one that got none, and both times the same."""
    rows = [{"question": question, "expected_answer": answer} for question, answer in QUESTIONS.items()]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompt = (
        "Question: {question}\nExpected: {expected_answer}\nGiven: {model_answer}\nIs the given answer right? Say yes or no."
    )
    verifier: dict[str, Any] = {
        "type": "judge",
        "base_url": small_model.base_url,
        "model": small_model.name,
        "prompt": {"user": prompt},
        "parse": {"how": "regex", "pattern": r"(?i)\b(yes|no)\b"},
        "labels": {"yes": 1, "no": 0},
        "parameters": {"temperature": 0, "max_output_tokens": 24},
        "accept_truncated": True,
        # The server's cache of earlier prompts changes sums in the last digit, and so, rarely, a word.
        "extra_body": {"cache_prompt": False},
    }
    config = {
        "input_jsonl_fpath": str(tmp_path / "tasks.jsonl"),
        "output_jsonl_fpath": str(tmp_path / "run.jsonl"),
        "prompt_config": {"user": "{question} Answer in one word."},
        "policy_model_name": small_model.name,
        "policy_base_url": small_model.base_url,
        "responses_create_params": {"temperature": 0, "max_output_tokens": 16},
        "num_samples_in_parallel": 1,
        "retry": {"max_attempts": 1},
        "verifier": verifier,
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))

    first = gym("run", "--config", str(tmp_path / "config.yaml"))
    again = gym(
        "reverify", "--rollouts", str(tmp_path / "run.jsonl"), "-o", str(tmp_path / "again.jsonl"), "--concurrency", "1"
    )

    results, failures = by_id(tmp_path / "run.jsonl"), by_id(tmp_path / "run_failures.jsonl")
    assert len(results) + len(failures) == len(QUESTIONS), first.stderr
    assert all(row["judge"]["verdict"] in {"yes", "no"} and row["judge_output_tokens"] > 0 for row in results.values())
    assert all(row["_ng_failure_class"] == "judge_invalid" and row["judge"]["text"] for row in failures.values())
    second = by_id(tmp_path / "again.jsonl")
    assert {name: row["judge"] for name, row in second.items()} == {name: row["judge"] for name, row in results.items()}
    assert again.returncode in {0, 6, 7}, again.stderr
