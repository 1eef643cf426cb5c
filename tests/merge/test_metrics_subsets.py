"""Figures of subsets of tasks and of what rollouts cost, beside those of all: each equals a recount in plain Python."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from merge.command import merge_paths
from merge.publication.generation import Reporting
from tests.merge.build import Plan, answered, failed, fill_all, plan

LEVELS = ["easy", "hard", None]


def entry(made: Plan, reporting: Reporting | None = None, **options: bool) -> dict[str, Any]:
    merge_paths([made.directory], made.merged.rollouts, reporting=reporting, **options)
    (found,) = json.loads(made.merged.aggregate.read_bytes())
    return found


def leveled(directory: Path) -> Plan:
    """Six tasks with two repeats: easy ones are right half the time, hard ones never, two have no level at all."""
    made = plan(directory, shards=2, tasks=6, repeats=2)
    fill_all(
        made,
        lambda task, repeat: answered(
            float(task % 3 == 0 and repeat == 0), extra={"level": LEVELS[task % 3], "extracted_answer": str(repeat)}
        ),
    )
    return made


def test_each_subset_has_the_family_of_its_own_tasks(tmp_path: Path) -> None:
    found = entry(leveled(tmp_path / "b"), Reporting(subset_field="level"))

    metrics = found["agent_metrics"]
    assert metrics["easy/pass@1/reward"] == 50.0
    assert metrics["easy/pass@2/reward"] == 100.0
    assert metrics["easy/pass@1[avg-of-2]/reward"] == 50.0
    assert metrics["hard/pass@2/reward"] == 0.0
    assert metrics["easy/pass@2/num_tasks"] == metrics["hard/pass@2/num_tasks"] == 2
    assert metrics["pass@2/num_tasks"] == 6
    assert found["key_metrics"]["easy/pass@2/reward"] == 100.0
    assert not [name for name in metrics if name.startswith(("None/", "/"))]


def test_without_the_key_and_with_one_that_no_row_has_nothing_changes(tmp_path: Path) -> None:
    made = leveled(tmp_path / "b")

    plain = entry(made)
    other = entry(made, Reporting(subset_field="colour"))

    assert plain == other
    assert not [name for name in plain["agent_metrics"] if "/pass@" in name]


def test_a_task_is_of_the_subset_that_the_first_of_its_rows_names(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=1, repeats=3)
    fill_all(made, lambda _, repeat: answered(1.0, extra={"level": [None, "easy", "hard"][repeat]}))

    metrics = entry(made, Reporting(subset_field="level"))["agent_metrics"]

    assert metrics["easy/pass@3/num_tasks"] == 1
    assert not [name for name in metrics if name.startswith("hard/")]


COSTS = [
    {"num_turns": 1, "num_tool_calls": 0, "token_observability_coverage": 1.0, "prompt_tokens": 10, "completion_tokens": 7},
    {"num_turns": 4, "token_observability_coverage": 0.0, "total_latency_ms": 1500.5, "completion_tokens": 20},
    {"num_turns": 2, "token_observability_coverage": 0.5, "prompt_tokens": 31, "total_latency_ms": 20, "note": "x"},
    None,
]


@pytest.mark.parametrize("masked", [pytest.param(True, id="a-masked-row-more"), pytest.param(False, id="all-measured")])
def test_what_rows_say_of_their_cost_is_summarized_by_nemo_gyms_names(tmp_path: Path, masked: bool) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=6)
    masked_cost = {"num_turns": 1000}
    outcomes = [answered(1.0, extra={} if cost is None else {"ng_perf": cost}) for cost in COSTS]
    outcomes += [answered(1.0, masked=True, extra={"ng_perf": masked_cost}) if masked else failed(), failed()]
    fill_all(made, lambda task, _: outcomes[task])

    found = entry(made)
    perf = found["perf_summary"]

    assert perf["overall_observability_coverage"] == 3 / 4
    assert perf["token_observability_coverage"] == 2 / 4
    assert (perf["mean_prompt_tokens"], perf["median_prompt_tokens"], perf["total_prompt_tokens"]) == (20.5, 20.5, 41)
    assert (perf["min_num_turns"], perf["max_num_turns"], perf["median_num_turns"]) == (1, 4, 2)
    assert perf["std_num_turns"] == pytest.approx(statistics.pstdev([1, 4, 2]))
    assert perf["p90_num_turns"] == pytest.approx(3.6)
    assert perf["mean_tokens_per_turn"] == perf["median_tokens_per_turn"] == 6.0
    assert perf["total_latency_p50_ms"] == perf["total_latency_mean_ms"] == pytest.approx(760.25)
    assert not [name for name in perf if "cached" in name or "reasoning" in name]
    assert not [name for name in found["agent_metrics"] if "ng_perf" in name]


def test_rows_without_a_cost_have_no_figures_of_it(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=2)
    fill_all(made, lambda *_: answered())

    assert not [name for name in entry(made)["perf_summary"] if "observability" in name or "turns" in name]


def test_a_cost_in_a_row_that_only_the_exact_reader_reads_counts_too(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=1, row={"note": "\ud800"})
    fill_all(made, lambda *_: answered(extra={"ng_perf": {"num_turns": 3}}))

    assert entry(made)["perf_summary"]["mean_num_turns"] == 3


def test_an_answer_of_a_masked_row_alone_makes_no_votes(tmp_path: Path) -> None:
    """The others, whose verifier reads no answer out, were all said to have none."""
    made = plan(tmp_path, shards=1, tasks=2, repeats=2)
    given = {"extracted_answer": "4"}
    fill_all(made, lambda task, _: answered(1.0, masked=task == 1, extra=given if task == 1 else {}))

    merge_paths([made.directory], made.merged.rollouts)

    metrics = json.loads(made.merged.aggregate.read_bytes())[0]["agent_metrics"]
    assert metrics["pass@2/reward"] == 100
    assert not [name for name in metrics if "no_answer" in name or "majority" in name]
