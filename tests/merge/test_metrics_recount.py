"""The metrics file against a recount in plain Python over the rows of the shards."""

from __future__ import annotations

import json
import math
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from collector.outcomes import Omitted
from merge.command import merge_paths
from tests.merge.build import Outcome, Plan, answered, failed, fill_all, plan


def mixed(task: int, repeat: int) -> Outcome | list[Outcome]:
    """Every way a rollout can end, spread over tasks and repeats."""
    usage = {
        "input_tokens": 10 + task,
        "output_tokens": 3 * repeat,
        "total_tokens": 13,
        "input_tokens_details": {"cached_tokens": 1},
    }
    extra = {"score": task / 3, "is_short": repeat == 0, "note": "7", "nested": {"n": 1}}
    if (task, repeat) in {(0, 0), (5, 1)}:
        return failed()
    if task == 1:
        return answered(1.0, masked=True, usage=usage, extra=extra)
    if (task, repeat) == (2, 1):
        return answered(None, usage=usage, extra=extra)
    if (task, repeat) == (3, 2):
        return Omitted(reason="asked for")
    if (task, repeat) == (4, 0):
        return [failed(terminal=False), answered(0.1, usage=usage, extra=extra)]
    return answered([0.0, 1.0, 0.1][(task + repeat) % 3], usage=usage, extra=extra)


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "b", shards=3, tasks=7, repeats=3, round_robin=True, row={"difficulty": 2})
    fill_all(made, mixed, order=-1)
    return made


def merged_entry(made: Plan) -> dict[str, Any]:
    merge_paths([made.directory], made.merged.rollouts)
    entries = json.loads(made.merged.aggregate.read_bytes())
    assert len(entries) == 1
    return entries[0]


def plain_rows(made: Plan) -> list[dict[str, Any]]:
    """Unmasked rows, read without any of the product's code, by task and repeat."""
    lines = [line for shard in made.shards for line in shard.rollouts.read_text().split("\n") if line]
    rows = [row for row in map(json.loads, lines) if not row["mask_sample"]]
    return sorted(rows, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))


def plain_values(rows: list[dict[str, Any]], field: str) -> list[float]:
    found = [row.get(field, row["response"]["usage"].get(field)) for row in rows]
    return [float(value) for value in found if isinstance(value, int | float)]


FIELDS = ["reward", "score", "is_short", "difficulty", "input_tokens", "output_tokens", "total_tokens"]


def test_each_field_has_its_five_figures_to_the_last_digit(made: Plan) -> None:
    metrics = merged_entry(made)["agent_metrics"]

    rows = plain_rows(made)
    for field in FIELDS:
        values = plain_values(rows, field)
        assert metrics[f"mean/{field}"] == math.fsum(values) / len(values)
        assert (metrics[f"max/{field}"], metrics[f"min/{field}"]) == (max(values), min(values))
        assert metrics[f"median/{field}"] == statistics.median(values)
        assert metrics[f"std/{field}"] == pytest.approx(statistics.stdev(values), rel=1e-14)
    assert {name.partition("/")[2] for name in metrics if name.startswith("mean/")} == set(FIELDS)


def test_the_mean_in_metrics_and_in_coverage_is_one_number(made: Plan) -> None:
    metrics = merged_entry(made)["agent_metrics"]

    coverage = json.loads(made.merged.coverage.read_bytes())
    assert metrics["mean/reward"] == coverage["mean_reward"]
    assert metrics["coverage/scored"] == coverage["measured"]
    assert metrics["coverage/expected"] == coverage["expected"] == 21


def test_coverage_stands_beside_the_score(made: Plan) -> None:
    key = merged_entry(made)["key_metrics"]

    rewards = plain_values(plain_rows(made), "reward")
    assert {name.partition("/")[2]: value for name, value in key.items() if name.startswith("coverage/")} == {
        "expected": 21, "scored": 14, "missing": 3, "imputed": 0, "measured_rollouts": 14, "masked_rollouts": 3,
        "unscored_rollouts": 1, "measured_tasks": 6, "fully_masked_tasks": 1, "failures_counted_as_zero": 0,
        "reward_lower_bound": math.fsum(rewards) / 21, "reward_upper_bound": (math.fsum(rewards) + 7) / 21,
    }  # fmt: skip


def test_no_headline_rests_on_some_of_the_tasks(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4, repeats=4)
    fill_all(made, lambda task, repeat: answered(float(task == 0)) if task == 0 or repeat < 2 else failed())

    entry = merged_entry(made)

    assert entry["agent_metrics"]["pass@4/reward"] == 100.0
    assert (entry["agent_metrics"]["pass@4/num_tasks"], entry["agent_metrics"]["pass@2/num_tasks"]) == (1, 4)
    headline = [name for name in entry["key_metrics"] if name.startswith(("pass@", "majority@"))]
    assert headline == ["pass@2/reward", "pass@1[avg-of-2]/reward"]
    assert entry["key_metrics"]["pass@2/reward"] == 25.0


def test_each_task_has_its_own_figures_and_counts(made: Plan) -> None:
    groups = merged_entry(made)["group_level_metrics"]

    rows = plain_rows(made)
    assert [group["_ng_task_index"] for group in groups] == list(range(7))
    for group in groups:
        mine = [row for row in rows if row["_ng_task_index"] == group["_ng_task_index"]]
        assert group["num_rollouts"] == len(mine)
        assert (group["expected_num_rollouts"], group["missing_num_rollouts"]) == (3, 3 - len(mine))
        assert [info["rollout_id"] for info in group["rollout_infos"]] == [
            f"{row['_ng_task_index']}:{row['_ng_rollout_index']}" for row in mine
        ]
        values = plain_values(mine, "reward")
        assert group["mean/reward"] == (math.fsum(values) / len(values) if values else None)
        assert group["median/reward"] == (statistics.median(values) if values else None)


def test_each_repeat_has_its_own_figures_and_counts(made: Plan) -> None:
    repeats = merged_entry(made)["repeat_level_metrics"]

    rows = plain_rows(made)
    assert [entry["_ng_rollout_index"] for entry in repeats] == [0, 1, 2]
    for entry in repeats:
        mine = [row for row in rows if row["_ng_rollout_index"] == entry["_ng_rollout_index"]]
        values = plain_values(mine, "reward")
        assert (entry["sample_count"], entry["missing_count"]) == (len(mine), 7 - len(mine))
        assert entry["mean/reward"] == math.fsum(values) / len(values)
        assert entry["sem/reward"] == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)))
        quartiles = statistics.quantiles(values, n=4, method="inclusive")
        assert (entry["p25/reward"], entry["p75/reward"]) == pytest.approx((quartiles[0], quartiles[2]))


def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_right_answer(tmp_path: Path) -> None:
    right = {0: [1, 0, 0, 1], 1: [0, 0, 0, 0], 2: [1, 1, 1, 1], 3: [0, 1]}
    made = plan(tmp_path / "b", shards=2, tasks=4, repeats=4)
    fill_all(made, lambda t, r: answered(float(right[t][r])) if r < len(right[t]) else failed())

    metrics = merged_entry(made)["agent_metrics"]

    for k in range(1, 5):
        enough = [scores for scores in right.values() if len(scores) >= k]
        shares = [sum(any(c) for c in combinations(scores, k)) / math.comb(len(scores), k) for scores in enough]
        assert metrics[f"pass@{k}/reward"] == pytest.approx(100 * sum(shares) / len(shares))
        first = [sum(scores[:k]) / k for scores in enough]
        assert metrics[f"pass@1[avg-of-{k}]/reward"] == pytest.approx(100 * sum(first) / len(first))
        assert metrics[f"pass@{k}/num_tasks"] == len(enough)
    runs = [100 * sum(scores[run] for scores in right.values()) / 4 for run in range(2)]
    assert metrics["pass@1[avg-of-2]/reward/std_dev_across_runs"] == pytest.approx(statistics.stdev(runs))
    within = [100 * statistics.stdev(scores[:2]) for scores in right.values()]
    assert metrics["pass@1[avg-of-2]/reward/avg_sample_std_dev"] == pytest.approx(sum(within) / 4)


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(answered(1.0, masked=True), id="all-masked"),
        pytest.param(failed(), id="all-failed"),
        pytest.param(Omitted(reason="x"), id="all-omitted"),
    ],
)
def test_without_a_measurement_there_is_no_score_only_coverage(tmp_path: Path, outcome: Outcome) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: outcome)

    entry = merged_entry(made)

    assert entry["agent_metrics"] == entry["key_metrics"]
    assert all(name.startswith("coverage/") for name in entry["key_metrics"])
    assert entry["key_metrics"]["coverage/scored"] == 0
    assert json.loads(made.merged.coverage.read_bytes())["mean_reward"] is None


def test_failures_leave_the_score_and_show_in_its_coverage(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=4, tasks=100)
    fill_all(made, lambda task, _: answered(1.0) if task < 80 else answered(0.0) if task < 90 else failed())

    key = merged_entry(made)["key_metrics"]

    assert key["mean/reward"] == 80 / 90
    assert (key["coverage/scored"], key["coverage/expected"], key["coverage/missing"]) == (90, 100, 10)


def test_rewards_outside_0_to_1_have_means_and_no_percentages(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda task, _: answered(1.7 if task else 0.5))

    metrics = merged_entry(made)["agent_metrics"]

    assert metrics["mean/reward"] == math.fsum([0.5, 1.7, 1.7, 1.7]) / 4
    assert not any(name.startswith("pass@") for name in metrics)


def test_a_row_without_usage_and_one_with_broken_text_count_alike(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=3, row={"text": "\ud800"})
    odd = {"output": [], "usage": "unknown"}
    fill_all(made, lambda task, _: answered(0.5, response=odd) if task == 0 else answered(1.0))

    metrics = merged_entry(made)["agent_metrics"]

    assert metrics["mean/reward"] == math.fsum([0.5, 1.0, 1.0]) / 3
    assert metrics["mean/input_tokens"] == 5


def test_the_file_is_strict_json_without_nan(made: Plan) -> None:
    merged_entry(made)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(made.merged.aggregate.read_bytes(), parse_constant=refuse)
