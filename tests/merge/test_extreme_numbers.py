"""Rewards and figures at the ends of what a float can be: no sum, square or distance of them ends a merge or its readers."""

from __future__ import annotations

import json
import math
import statistics
import sys
from array import array
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.artifacts import RunArtifacts
from collector.state.scores import Scores, exact_sum
from merge.command import merge_paths
from merge.metrics.figures import deviation, mean_of, quantile, summarize
from merge.metrics.groups import group_metrics
from merge.metrics.intervals import difference_interval
from merge.metrics.table import RowTable
from merge.rows.blocks import RowBlock
from merge.rows.numbers import NumberReader, RowNumbers
from orchestrate.cli.compare import main as compare
from orchestrate.cli.report import main as report
from orchestrate.report.bins import distribute
from tests.merge.build import answered, fill_all, plan

HUGE = [1.7e308, -1.7e308, 1e200, 5e-324, 0.5, 1e308]
ANY_FINITE = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=90)
WHOLE = st.lists(st.integers(-(1 << 26), 1 << 26).map(float), min_size=1, max_size=90)


def merged(directory: Path, rewards: list[float]) -> Path:
    made = plan(directory, shards=2, tasks=len(rewards) // 2, repeats=2)
    fill_all(made, lambda task, repeat: answered(rewards[2 * task + repeat], extra={"loss": rewards[-1 - 2 * task - repeat]}))
    merge_paths([made.directory], made.merged.rollouts)
    return made.merged.rollouts


def metrics_of(target: Path) -> dict[str, Any]:
    return json.loads(RunArtifacts(target).aggregate.read_bytes())[0]


def test_a_run_with_rewards_at_both_ends_is_merged_compared_and_shown(tmp_path: Path) -> None:
    target, other = merged(tmp_path / "a", HUGE), merged(tmp_path / "b", HUGE[::-1])

    metrics = metrics_of(target)
    assert metrics["agent_metrics"]["mean/reward"] == float(sum(map(Fraction, HUGE)) / len(HUGE))
    assert metrics["agent_metrics"]["max/loss"] == 1.7e308
    assert [group["mean/reward"] for group in metrics["group_level_metrics"]] == [0.0, 5e199, 5e307]
    # Their distance is beyond all floats.
    assert metrics["group_level_metrics"][0]["std/reward"] is None
    assert compare([str(target), str(other)]) in {0, 6}
    page = tmp_path / "page.html"
    assert report([str(target), "-o", str(page)]) == 0
    assert "1e+308" in page.read_text()


def test_a_sum_beyond_all_floats_is_told_as_none_and_the_mean_is_still_there(tmp_path: Path) -> None:
    target = merged(tmp_path, [1.5e308] * 4)

    coverage = json.loads(RunArtifacts(target).coverage.read_bytes())
    assert (coverage["reward_sum"], coverage["reward_max"], coverage["measured"]) == (None, 1.5e308, 4)
    assert metrics_of(target)["agent_metrics"]["mean/reward"] == 1.5e308


@given(ANY_FINITE)
def test_sums_are_exact_or_none_whichever_way_they_are_made(values: list[float]) -> None:
    one_by_one = Scores()
    for value in values:
        one_by_one.add(value)
    exact = sum(map(Fraction, values))

    found = exact_sum(values)

    assert found == one_by_one.total == Scores.of(values).total
    cut = len(values) // 3
    parts = Scores.together([Scores.of(values[:cut]), Scores(), Scores.of(values[cut : 2 * cut]), Scores.of(values[2 * cut :])])
    assert (parts.total, parts.count, parts.low, parts.high) == (found, len(values), min(values), max(values))
    if found is None:
        with pytest.raises(OverflowError):
            float(exact)
    else:
        assert found == float(exact)


@given(ANY_FINITE | WHOLE)
def test_figures_of_any_numbers_are_those_of_exact_arithmetic(values: list[float]) -> None:
    found = summarize(values)

    assert found is not None
    assert found.mean == pytest.approx(float(sum(map(Fraction, values)) / len(values)), rel=1e-15, abs=5e-324)
    assert math.isfinite(found.median)
    assert math.isfinite(quantile(sorted(values), 0.3))
    try:
        exact = statistics.stdev(values) if len(values) > 1 else None
    except OverflowError:
        exact = math.inf
    assert found.std == deviation(values) == (None if exact is None else pytest.approx(exact, rel=1e-9, abs=1e-300))


@given(WHOLE)
def test_the_deviation_of_whole_numbers_is_rounded_no_more_than_their_variance(values: list[float]) -> None:
    if len(values) > 1:
        variance = Fraction(statistics.variance(map(Fraction, values)))

        assert deviation(values) == math.sqrt(float(variance))


@given(
    st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=False) | st.integers(-9, 9).map(float), max_size=5), max_size=6)
)
def test_figures_of_all_tasks_at_once_are_those_of_each(tasks: list[list[float]]) -> None:
    places = [task << 32 | repeat for task, values in enumerate(tasks) for repeat in range(len(values))]
    table = RowTable()
    column = [value for values in tasks for value in values]
    answers = [0] * len(column)
    table.add(_numbers(places, column, answers))

    groups = list(group_metrics(table, places))

    assert [group["_ng_task_index"] for group in groups] == [task for task, values in enumerate(tasks) if values]
    for group in groups:
        values = [value for value in tasks[group["_ng_task_index"]] if not math.isnan(value)]
        found = tuple(group[f"{figure}/loss"] for figure in ("mean", "max", "min", "median", "std"))
        assert found == (summarize(values) or (None,) * 5)


def _numbers(keys: list[int], column: list[float], answers: list[int]) -> RowNumbers:
    return RowNumbers(array("q", keys), array("q"), array("q", answers), False, {"loss": array("d", column)}, array("q"), {})


LARGEST = repr(sys.float_info.max)


@pytest.mark.parametrize("number", [LARGEST, f"-{LARGEST}", str(int(float(LARGEST))), str(int(float(LARGEST)) + 1), "1e308"])
@pytest.mark.parametrize("beside", ['"x"', '"\\ud800"'], ids=["plain", "lone-surrogate"])
def test_the_largest_number_is_one_whatever_stands_beside_it(number: str, beside: str) -> None:
    """A row with a lone surrogate was measured in the coverage, and its reward of the largest float was in no mean."""
    lines = [f'{{"reward": {number}, "extracted_answer": {answer}, "x": {beside}}}' for answer in (number, float(number))]

    found = NumberReader().read(RowBlock([0, 1], [memoryview(line.encode()) for line in lines]))

    assert found.columns["reward"].tolist() == [float(number)] * 2
    assert found.answers[0] == found.answers[1]


def test_an_interval_of_huge_differences_is_a_number() -> None:
    low, high = difference_interval([1e200, 3e200], [5e200, 9e200]) or (0.0, 0.0)
    same = difference_interval([1.0, 3.0], [5.0, 9.0]) or (0.0, 0.0)

    assert (low, high) == pytest.approx((same[0] * 1e200, same[1] * 1e200))


def test_bars_reach_from_one_end_of_all_floats_to_the_other() -> None:
    found = distribute([-1.7e308, 1.7e308, *(float(number) for number in range(1500))])

    assert found is not None
    assert sum(found.counts) == 1502
    assert mean_of([1.7e308, 1.7e308]) == 1.7e308


@pytest.mark.parametrize("masked", [0, 1])
def test_seconds_are_the_recorded_ones_to_the_last_digit(tmp_path: Path, masked: int) -> None:
    """Of attempts that took weeks, with the journal's own row of each at hand and, beside a masked one, read again."""
    made = plan(tmp_path / "b", shards=1, tasks=3, repeats=1)
    (shard,) = fill_all(made, lambda task, _: answered(1.0, masked=task < masked))
    seconds = [2419200.123, 1209600.457, 0.789]
    journal = shard.journal.read_text().split('"elapsed_s":0.5')
    shard.journal.write_text("".join(f'{part}"elapsed_s":{s}' for part, s in zip(journal, seconds, strict=False)) + journal[-1])

    merge_paths([made.directory], made.merged.rollouts)

    figures = metrics_of(made.merged.rollouts)["perf_summary"]
    assert figures["attempts/elapsed_s/count"] == 3
    assert figures["attempts/elapsed_s/max"] == 2419200.123
    assert figures["attempts/elapsed_s/mean"] == math.fsum(seconds) / 3
