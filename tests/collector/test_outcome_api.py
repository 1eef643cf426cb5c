"""Rows in memory are answered and graded once each; what comes back belongs to the caller, and what was given stays."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from collector.collect import _shown  # pyright: ignore[reportPrivateUsage] - what an error shows
from collector.errors import ConfigError, DatasetError, RequestError
from collector.outcome_api import run_outcomes
from tests.collector.shards import asked, settings_for
from tests.support.model_server import ModelServer


def row(n: int, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": [{"role": "user", "content": f"{n}?"}]}, "n": n, "grade": 1, **fields}


def outcomes(rows: list[dict[str, Any]], directory: Path, run_id: str | None = None, **changes: Any) -> list[dict[str, Any]]:
    return asyncio.run(run_outcomes(rows, settings_for(directory, **changes), run_id=run_id))


def test_results_and_failures_come_back_in_the_order_of_their_rows(tmp_path: Path) -> None:
    rows = [row(0, grade=0.5), row(1, fail=9), row(2, grade=None), row(3, mask=True, say="x")]

    found = outcomes(rows, tmp_path, num_samples_in_parallel=2)

    assert [saved["n"] for saved in found] == [0, 1, 2, 3]
    assert [saved.get("reward") for saved in found] == [0.5, None, None, 1]
    assert (found[1]["_ng_failure_class"], "response" in found[1]) == ("agent_run_error", False)
    assert (found[2]["execute_only"], found[3]["mask_sample"], found[3]["said"]) == (True, True, "x")
    assert asked(tmp_path) == {"0-0": 1, "1-0": 1, "2-0": 1, "3-0": 1}


def test_nothing_is_written(tmp_path: Path) -> None:
    outcomes([row(0)], tmp_path, agent={"log": None})

    assert not list(tmp_path.iterdir())


def test_the_run_id_is_the_given_one_or_a_new_one(tmp_path: Path) -> None:
    given = outcomes([row(0), row(1, fail=1)], tmp_path, run_id="sweep-7.a")
    new = [outcomes([row(0)], tmp_path)[0]["_ng_run_id"] for _ in range(2)]

    assert {saved["_ng_run_id"] for saved in given} == {"sweep-7.a"}
    assert given[1]["_ng_failure_record"]["run_id"] == "sweep-7.a"
    assert len(set(new)) == 2


@pytest.mark.parametrize("run_id", ["", "a b", "../x", "-a"])
def test_a_run_id_that_could_be_no_file_name_is_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(RequestError, match="is no run id"):
        outcomes([row(0)], tmp_path, run_id=run_id)

    assert not asked(tmp_path)


def test_given_rows_never_change_and_share_nothing_with_what_comes_back(tmp_path: Path) -> None:
    shared = {"role": "user", "content": "?", "deep": [{"x": 1}]}
    rows = [{"responses_create_params": {"input": [shared]}, "grade": 1, "n": n} for n in range(3)]
    before = copy.deepcopy(rows)

    found = outcomes(rows, tmp_path, responses_create_params={"temperature": 0.5})
    for saved in found:
        saved["responses_create_params"]["input"][0]["deep"][0]["x"] = saved["n"]
        saved["response"]["output"].clear()

    assert rows == before
    assert [saved["responses_create_params"]["input"][0]["deep"][0]["x"] for saved in found] == [0, 1, 2]
    assert all(saved["responses_create_params"]["temperature"] == 0.5 for saved in found)


def test_rows_keep_the_indices_they_have(tmp_path: Path) -> None:
    rows = [row(0, _ng_task_index=7, _ng_rollout_index=1), row(0, _ng_task_index=7, _ng_rollout_index=0)]

    found = outcomes(rows, tmp_path)

    assert [(saved["_ng_task_index"], saved["_ng_rollout_index"]) for saved in found] == [(7, 1), (7, 0)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([row(0, _ng_task_index=1, _ng_rollout_index=0)] * 2, "row 1: rollout '1-0' occurs twice", id="same-id"),
        pytest.param([row(0, _ng_task_index=1), row(1)], "0 of 2 rows have both", id="half-an-identity"),
        pytest.param([row(0), {"n": 1}], "row 1: no responses_create_params.input", id="no-input"),
        pytest.param([row(0, x=float("nan"))], "row 0: the row cannot be used", id="nan"),
        pytest.param([row(0, x=object())], "row 0: the row cannot be used", id="no-json"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_before_anything_is_sent(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        outcomes(rows, tmp_path)

    assert message in str(caught.value)
    assert not asked(tmp_path)


def test_a_prompt_template_is_refused_and_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="prompt_config"):
        outcomes([row(0)], tmp_path, prompt_config={"user": "{n}?"})


def test_no_rows_are_no_outcomes(tmp_path: Path) -> None:
    assert outcomes([], tmp_path) == []


def test_at_most_so_many_requests_are_in_flight(tmp_path: Path) -> None:
    with ModelServer(tmp_path, delay=0.1) as server:
        settings = settings_for(tmp_path, num_samples_in_parallel=3, policy_base_url=server.base_url, policy_model_name="m")
        settings = settings.model_copy(update={"agent": {"type": "openai_chat"}})
        found = asyncio.run(run_outcomes([row(n) for n in range(12)], settings))
        stats = server.stats()

    assert (stats["max_in_flight"], stats["total"], [saved["n"] for saved in found]) == (3, 12, list(range(12)))


@pytest.mark.parametrize("address", ["http://u:sekret1@h:9/v1", "http://h:9/v1?key=sekret1", "http://h:9/v1"])
def test_an_address_in_an_error_carries_no_secret(address: str) -> None:
    assert _shown(address) == "http://h:9/v1"
