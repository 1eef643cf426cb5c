"""What figures are called in a tracker and which are sent: legal, bounded, never two under one name, never invented."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.outcomes import RolloutState
from collector.state.coverage import Coverage
from exporters.flatten import Flat, flatten_run, flatten_settings
from exporters.source import RunFigures
from exporters.trackers.mlflow import chunks
from exporters.trackers.names import MLFLOW_LONGEST, bounded, mlflow_name, rename, stable_id, wandb_name

LEGAL = re.compile(r"[/\w.\-: ]+")


def coverage(**changes: Any) -> Coverage:
    states = dict.fromkeys(RolloutState, 0) | {RolloutState.MEASURED: 4}
    return Coverage(benchmark="b", run_id="r", expected=4, states=states, reward_sum=2.0, reward_min=0, reward_max=1, **changes)


def flat_of(**metrics: Any) -> Flat:
    return flatten_run(RunFigures(coverage(), [{"agent_ref": {"name": "a"}, "agent_metrics": metrics, "key_metrics": {}}]), {})


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("pass@1", "pass_at_1"),
        ("exact_match,strict", "exact_match_strict"),
        ("acc (n=4)", "acc _n_4_"),
        ("a//b", "a/b"),
        ("/x", "x"),
        ("../x", "__/x"),
        ("mean/reward", "mean/reward"),
    ],
)
def test_a_name_that_mlflow_refuses_is_rewritten_the_same_way_each_time(name: str, made: str) -> None:
    assert mlflow_name(name) == made


def test_names_that_would_meet_are_told_apart_and_the_legal_one_keeps_itself() -> None:
    renamed = rename(["pass@1", "pass_at_1", "a,b", "a_b", "A_B"], mlflow_name, longest=MLFLOW_LONGEST)

    assert renamed["pass_at_1"] == "pass_at_1"
    assert renamed["pass@1"].startswith("pass_at_1_")
    assert len({made.casefold() for made in renamed.values()}) == 5


def test_a_store_of_files_gets_no_name_that_is_a_folder_of_another() -> None:
    renamed = rename(["a", "a/b"], mlflow_name, longest=MLFLOW_LONGEST, has_folders=True)

    assert renamed["a/b"] == "a/b"
    assert renamed["a"].startswith("a_")


@settings(deadline=None)
@given(st.lists(st.text(max_size=300), max_size=8, unique=True))
def test_every_name_is_legal_bounded_and_alone(names: list[str]) -> None:
    renamed = rename(names, mlflow_name, longest=MLFLOW_LONGEST)

    assert len({made.casefold() for made in renamed.values()}) == len(names)
    for made in renamed.values():
        assert LEGAL.fullmatch(made), made
        assert len(made) <= MLFLOW_LONGEST
        assert not made.startswith("/")
        assert all(part.strip(".") for part in made.split("/"))
    assert all(wandb_name(name) and not wandb_name(name).startswith("_") for name in names)


def test_a_long_name_keeps_its_head_and_its_tail() -> None:
    made = bounded("head" + "x" * 300 + "tail", 250)

    assert len(made) == 250
    assert made.startswith("head")
    assert made.endswith("tail")


@pytest.mark.parametrize("benchmark", ["gpqa/diamond", "run:1", "epoch=0", "x" * 129, "", "数学", "a;b,c#d?e'f"])
def test_one_run_has_one_legal_id(benchmark: str) -> None:
    made = stable_id("r" * 32, benchmark)

    assert made == stable_id("r" * 32, benchmark)
    assert re.fullmatch(r"[a-z0-9-]{1,64}", made)
    assert made != stable_id("q" * 32, benchmark)


def test_what_is_no_finite_number_is_listed_and_not_sent() -> None:
    flat = flat_of(good=0.5, nan=math.nan, inf=math.inf, none=None, big=2**60, flag=True, text="x", per_task=[1, 2])

    assert flat.metrics["a/good"] == 0.5
    assert set(flat.omitted) >= {"a/nan", "a/inf", "a/none", "a/big", "a/per_task"}
    assert not set(flat.omitted) & set(flat.metrics)
    assert flat.texts == {"a/flag": "true", "a/text": "x"}
    assert all(math.isfinite(value) for value in flat.metrics.values())


def test_a_run_without_a_score_sends_its_coverage_and_no_number_for_the_score() -> None:
    states = dict.fromkeys(RolloutState, 0) | {RolloutState.MASKED: 4}
    nothing = Coverage(benchmark="b", run_id="r", expected=4, states=states)

    flat = flatten_run(RunFigures(nothing, []), {})

    assert flat.metrics["coverage/expected"] == 4.0
    assert flat.metrics["coverage/masked"] == 4.0
    assert flat.omitted["coverage/mean_reward"] == "absent"


def test_figures_of_tasks_are_not_exploded() -> None:
    entry = {"agent_ref": {"name": "a"}, "agent_metrics": {}, "key_metrics": {}, "group_level_metrics": [{"x": 1}] * 5000}

    assert len(flatten_run(RunFigures(coverage(), [entry]), {}).metrics) < 30


def test_settings_are_dotted_and_keep_their_text() -> None:
    found = dict(flatten_settings({"a": {"b": [1, {"c": None}]}, "t": "007", "e": {}, "f": []}))

    assert found == {"a.b[0]": "1", "a.b[1].c": "null", "t": "007", "e": "{}", "f": "[]"}


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 150, 1000])
def test_parts_hold_everything_and_none_is_empty(count: int) -> None:
    parts = chunks({str(number): number for number in range(count)}, 100)

    assert sum(map(len, parts)) == count
    assert all(0 < len(part) <= 100 for part in parts)
