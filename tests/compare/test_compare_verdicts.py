"""What a comparison says, when it says that it cannot say, and what a gate makes of it."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from collector.errors import NotFoundError, RefusedError, RequestError
from merge.compare.gate import GateState, judge, parse_gate
from merge.compare.load import load_side
from merge.compare.verdict import Comparison, Pairing, Verdict, compare
from merge.metrics.intervals import difference_interval, mean_interval
from orchestrate.cli.main import main
from tests.compare.sides import write_side
from tests.merge.build import answered, fill_all, plan


def compared(base: Path, candidate: Path, *, pair_by_index: bool = False) -> Comparison:
    return compare(load_side(base), load_side(candidate), pair_by_index=pair_by_index)


def rewards(count: int, chance: float, seed: int = 0, repeats: int = 4) -> dict[int, list[float]]:
    rng = random.Random(seed)
    return {task: [float(rng.random() < chance) for _ in range(repeats)] for task in range(count)}


SCORES = st.lists(st.floats(-10, 10), min_size=2, max_size=30)


@given(SCORES, SCORES)
def test_intervals_are_those_of_scipy(base: list[float], candidate: list[float]) -> None:
    found = mean_interval(base)
    assert found is not None
    error = stats.sem(base)
    wanted = stats.t.interval(0.95, len(base) - 1, loc=sum(base) / len(base), scale=error) if error > 1e-9 else None
    assert wanted is None or tuple(found) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    if error > 1e-9 and stats.sem(candidate) > 1e-9:
        between = stats.ttest_ind(candidate, base, equal_var=False).confidence_interval(0.95)
        assert tuple(difference_interval(base, candidate) or ()) == pytest.approx(
            (between.low, between.high), rel=1e-6, abs=1e-9
        )


def test_tasks_are_paired_where_both_runs_asked_the_same(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", {task: [task / 40] for task in range(40)})
    candidate = write_side(tmp_path / "b.jsonl", {task: [task / 40 + 0.02 + task % 2 / 1000] for task in range(40)})

    paired = compared(base, candidate).reward
    assert paired is not None
    assert (paired.pairing, paired.verdict) == (Pairing.PAIRED, Verdict.HIGHER)

    other = write_side(
        tmp_path / "c.jsonl", {task: [task / 40 + 0.02 + task % 2 / 1000] for task in range(40)}, digest="e" * 64
    )
    unpaired = compared(base, other)
    assert unpaired.reward is not None
    assert (unpaired.reward.pairing, unpaired.reward.verdict) == (Pairing.WELCH, Verdict.NO_DIFFERENCE_SHOWN)
    assert (unpaired.fixed, unpaired.broken) == ((), ())
    again = compared(base, other, pair_by_index=True).reward
    assert again is not None
    assert again.verdict is Verdict.HIGHER


def test_a_task_flips_when_its_mean_crosses_a_half(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", {0: [1, 1], 1: [0, 0], 2: [1, 0], 3: [1, 0], 4: [1, 1]})
    candidate = write_side(tmp_path / "b.jsonl", {0: [1, 0], 1: [1, 1], 2: [1, 1], 3: [0, 0], 4: [1, 1]})

    found = compared(base, candidate)

    assert [flip.task for flip in found.fixed] == [1, 2]
    assert [flip.task for flip in found.broken] == [0]


@pytest.mark.parametrize(
    ("expected", "digest", "reason"),
    [
        pytest.param(100, "d" * 64, "60 of 100 rollouts of the candidate have no score", id="incomplete"),
        pytest.param(None, "d" * 64, "the coverage of the candidate is not known", id="coverage-unknown"),
    ],
)
def test_incomplete_coverage_is_insufficient_evidence(tmp_path: Path, expected: int | None, digest: str, reason: str) -> None:
    base = write_side(tmp_path / "a.jsonl", {task: [float(task % 2)] for task in range(40)})
    candidate = write_side(tmp_path / "b.jsonl", {task: [1.0] for task in range(40)}, expected=expected, digest=digest)

    found = compared(base, candidate).reward

    assert found is not None
    assert found.verdict is Verdict.INSUFFICIENT
    assert reason in found.reason


def test_a_difference_that_holds_whatever_the_missing_would_score_stands(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", {task: [float(task % 10 == 0)] for task in range(100)})
    candidate = write_side(tmp_path / "b.jsonl", {task: [float(task % 10 != 0)] for task in range(95)}, expected=100)

    found = compared(base, candidate).reward

    assert found is not None
    assert (found.verdict, "it holds whatever" in found.reason) == (Verdict.HIGHER, True)


UNEVEN = {0: [1.0, 1.0, 1.0], **{task: [0.0] for task in range(1, 12)}}


def test_the_columns_subtract_to_the_difference_and_the_whole_means_stand_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_side(tmp_path / "a" / "rollouts.jsonl", {**UNEVEN, 12: [1.0], 13: [1.0]})
    candidate = write_side(tmp_path / "b" / "rollouts.jsonl", {task: [1.0] for task in range(12)})

    assert main(["eval", "compare", str(base), str(candidate)]) == 0

    report = json.loads((tmp_path / "b" / "compare_report.json").read_bytes())
    (metric,) = report["candidates"][0]["metrics"]
    assert (metric["base"], metric["candidate"]) == (5 / 16, 1.0)
    assert (metric["paired_base"], metric["paired_candidate"], metric["tasks"]) == (1 / 12, 1.0, 12)
    assert metric["delta"] == metric["paired_candidate"] - metric["paired_base"]
    why = "2 of 14 tasks of the base are not in both, and tasks of the base have different numbers of rollouts with a value"
    assert metric["means_reason"] == why
    printed = capsys.readouterr().out
    (row,) = [line for line in printed.splitlines() if line.lstrip().startswith("mean/reward  ")]
    assert row.split()[1:4] == ["0.08333", "1", "+0.9167"]
    markdown = (tmp_path / "b" / "compare_report.md").read_text()
    assert "| mean/reward | 0.08333 | 1 | +0.9167 |" in markdown
    for text in (printed, markdown):
        assert "- mean/reward over all rollouts: base 0.3125, candidate 1\n" in text
        assert why in text


def test_unpaired_columns_subtract_too(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", UNEVEN)
    candidate = write_side(tmp_path / "b.jsonl", {task: [1.0] for task in range(20)}, digest="e" * 64)

    found = compared(base, candidate).reward

    assert found is not None
    assert (found.paired_base, found.paired_candidate, found.delta) == (1 / 12, 1.0, 1 - 1 / 12)
    assert found.means_reason == "tasks of the base have different numbers of rollouts with a value"


def test_a_metric_of_one_side_shows_its_own_mean_beside_no_difference(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", {task: [1.0] for task in range(12)})
    candidate = write_side(tmp_path / "b.jsonl", {task: [1.0] for task in range(12)})
    target = tmp_path / "b_aggregate_metrics.json"
    (entry,) = json.loads(target.read_bytes())
    entry["agent_metrics"]["mean/cost"] = 3.0
    for group in entry["group_level_metrics"]:
        group["mean/cost"] = 3.0
    target.write_text(json.dumps([entry]))

    (found,) = [metric for metric in compared(base, candidate).metrics if metric.metric == "mean/cost"]

    assert (found.paired_base, found.paired_candidate, found.delta, found.tasks) == (None, 3.0, None, 0)
    assert (found.reason, found.means_reason) == ("only one side has it", "")


def test_means_that_are_the_same_need_no_reason(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", rewards(30, 0.3))
    candidate = write_side(tmp_path / "b.jsonl", rewards(30, 0.7))

    assert [metric.means_reason for metric in compared(base, candidate).metrics] == [""]


def test_few_tasks_say_nothing(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", {task: [0.0] for task in range(9)})
    candidate = write_side(tmp_path / "b.jsonl", {task: [1.0] for task in range(9)})

    found = compared(base, candidate).reward

    assert found is not None
    assert (found.verdict, found.reason) == (Verdict.INSUFFICIENT, "9 tasks, and fewer than 10 say nothing")


@pytest.mark.parametrize(
    ("shift", "limit", "state"),
    [
        pytest.param(0.0, -0.01, GateState.PASSED, id="the-same"),
        pytest.param(-0.5, -0.01, GateState.FAILED, id="much-lower"),
        pytest.param(0.5, 0.2, GateState.PASSED, id="much-higher"),
    ],
)
def test_a_gate_looks_at_the_whole_interval(tmp_path: Path, shift: float, limit: float, state: GateState) -> None:
    base = write_side(tmp_path / "a.jsonl", {task: [0.5] for task in range(40)})
    candidate = write_side(tmp_path / "b.jsonl", {task: [0.5 + shift] for task in range(40)})

    result = judge(parse_gate(f"mean/reward:min_delta={limit}"), compared(base, candidate))

    assert result.state is state


def test_a_gate_is_undecided_while_the_interval_lies_on_both_sides(tmp_path: Path) -> None:
    base = write_side(tmp_path / "a.jsonl", rewards(30, 0.5, seed=1))
    candidate = write_side(tmp_path / "b.jsonl", rewards(30, 0.5, seed=2))

    result = judge(parse_gate("mean/reward:min_delta=-0.01"), compared(base, candidate))

    assert result.state is GateState.UNDECIDED


@pytest.mark.parametrize(
    "text",
    [
        "mean/reward",
        "mean/reward:min_delta",
        "x:max_delta=1",
        ":min_delta=1",
        "x:min_delta=nan",
        "x:min_delta=-0_01",
        "x:min_delta=\uff11",
    ],
)
def test_a_gate_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"It is METRIC:min_delta=NUMBER"):
        parse_gate(text)


def test_the_command_writes_both_reports_and_ends_with_the_gates_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_side(tmp_path / "a" / "rollouts.jsonl", {task: [1.0] for task in range(20)})
    good = write_side(tmp_path / "b" / "rollouts.jsonl", {task: [1.0] for task in range(20)})
    bad = write_side(tmp_path / "c" / "rollouts.jsonl", {task: [0.0] for task in range(20)})
    gate = ["--gate", "mean/reward:min_delta=-0.01"]

    codes = [main(["eval", "compare", str(base), str(side), *gate]) for side in (good, bad)]
    several = main(["eval", "compare", str(base), str(good), str(bad), *gate, "--output-dir", str(tmp_path / "out")])

    assert (*codes, several) == (0, 9, 9)
    assert "gate mean/reward at least -0.01: failed" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "compare_report.json").read_bytes())
    assert [metric["verdict"] for side in report["candidates"] for metric in side["metrics"]] == [
        "no difference shown",
        "lower",
    ]
    assert [gate["state"] for gate in report["gates"]] == ["passed", "failed"]
    assert "20/20 scored" in (tmp_path / "c" / "compare_report.md").read_text()


def test_two_runs_of_one_dataset_are_paired_from_merge_to_report(tmp_path: Path) -> None:
    for name, chance in (("a", 0.3), ("b", 0.9)):
        rng = random.Random(7)
        made = plan(tmp_path / name, shards=2, tasks=30, repeats=2)
        fill_all(made, lambda *_, rng=rng, chance=chance: answered(float(rng.random() < chance)))
        assert main(["eval", "aggregate", str(made.directory), "-o", str(made.merged.rollouts)]) == 0

    found = compared(tmp_path / "a", tmp_path / "b")

    assert found.is_paired
    assert found.reward is not None
    assert found.reward.verdict is Verdict.HIGHER
    assert math.isclose(found.reward.delta or 0, (found.reward.candidate or 0) - (found.reward.base or 0))


def test_a_run_without_metrics_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="Run gym eval aggregate first"):
        load_side(tmp_path)


def test_a_file_with_several_agents_needs_one_named(tmp_path: Path) -> None:
    path = write_side(tmp_path / "a.jsonl", {0: [1.0]})
    target = tmp_path / "a_aggregate_metrics.json"
    (entry,) = json.loads(target.read_bytes())
    target.write_text(json.dumps([entry, {**entry, "agent_ref": {"name": "other"}}]))

    with pytest.raises(RefusedError, match=r"several agents: solver, other. Name one with --agent"):
        load_side(path)
    assert load_side(path, "other").agent == "other"
