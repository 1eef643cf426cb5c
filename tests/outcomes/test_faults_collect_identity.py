"""Faults of identity, as people met them: saved work that was served for another experiment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.errors import IdentityError
from tests.outcomes.bench import Bench

GRADER = "def grade(row, text, response):\n    return {}\n"
SAME: dict[str, Any] = {
    "policy_model_name": "org/model@rev1",
    "responses_create_params": {"temperature": 0.5, "metadata": {"api_base": "a"}},
    "prompt_config": {"user": "{n}?", "system": "Be brief."},
    "verifier": {"type": "python", "function": "a_users_grader:grade", "kwargs": {}},
    "num_repeats": 2,
    "limit": 2,
}


@pytest.fixture
def graded(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A finished run with a system prompt, two repeats, a limit and a grader of the user's own."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_users_grader.py").write_text(GRADER.format("1.0"))
    lines = "".join(f'{{"n": {n}, "grade": 1}}\n' for n in range(3))
    (tmp_path / "tasks.jsonl").write_text(lines)
    bench.base |= {"agent": {"type": "acted"}, **SAME}
    bench.fill()
    yield bench
    sys.modules.pop("a_users_grader", None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"policy_model_name": "org/other@rev1"}, "policy_model_name", id="model"),
        pytest.param({"policy_model_name": "org/model@rev2"}, "policy_model_name", id="revision"),
        pytest.param({"responses_create_params": {"temperature": 0.6, "metadata": {"api_base": "a"}}}, "temperature", id="temperature"),
        pytest.param({"responses_create_params": {"temperature": 0.5, "metadata": {"api_base": "b"}}}, "api_base", id="nested-parameter"),
        pytest.param({"prompt_config": {"user": "{n}?", "system": "Be long."}}, "prompt_config.system", id="system-prompt"),
        pytest.param({"verifier": {**SAME["verifier"], "kwargs": {"strict": True}}}, "verifier.kwargs", id="grader-setting"),
        pytest.param({"verifier": {"type": "judged"}}, "verifier.type", id="grader"),
        pytest.param({"num_repeats": 3}, "num_repeats", id="repeats"),
        pytest.param({"limit": 1}, "limit", id="limit"),
        pytest.param({"num_repeats_add_seed": True}, "num_repeats_add_seed", id="seed"),
    ],
)  # fmt: skip
def test_d16_work_of_another_experiment_is_never_served(graded: Bench, change: dict[str, Any], named: str) -> None:
    """One thing that is measured differs: refused by its name, before a byte or a request."""
    before, calls = graded.contents(), graded.asked()

    with pytest.raises(IdentityError, match=named):
        graded.fill(**change)

    assert (graded.contents(), graded.asked()) == (before, calls)


@pytest.mark.parametrize("what", ["grader-code", "dataset-text"])
def test_d16_the_content_of_a_file_counts_and_not_its_name(graded: Bench, tmp_path: Path, what: str) -> None:
    """The grader's code or one row's text changed under the same name: refused."""
    if what == "grader-code":
        (tmp_path / "a_users_grader.py").write_text(GRADER.format("0.0"))
    else:
        path = tmp_path / "tasks.jsonl"
        path.write_text(path.read_text().replace('"n": 1', '"n": 7'))

    with pytest.raises(IdentityError, match=r"source_digest|the dataset's content"):
        graded.fill()

    assert sum(graded.asked().values()) == 4


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"policy_base_url": "http://127.0.0.1:9999/v1"}, id="port"),
        pytest.param({"policy_api_key": "sk-new"}, id="key"),
        pytest.param({"retry": {"max_attempts": 9, "max_interruptions": 2}}, id="retries"),
        pytest.param({"num_samples_in_parallel": 7, "timeouts": {"request_s": 1}}, id="speed"),
        pytest.param({"durability": "flush", "dispatch_longest_first": True, "dispatch_budget_s": 60}, id="when"),
    ],
)
def test_d16_how_and_where_it_was_measured_does_not_count(graded: Bench, change: dict[str, Any]) -> None:
    """The second group: port, token, retries and reporting switches differ, and the saved work is reused."""
    assert graded.fill(**change).coverage.measured == 4
    assert sum(graded.asked().values()) == 4
