"""Randomized runs with every state: each published number equals a recount in plain Python."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.outcomes import Failure, Omitted
from merge.command import merge_paths
from tests.merge.build import Outcome, answered, fill_all, plan
from tests.merge.recount import Recount, figures, interval, majority, share_with_a_right_one

ANSWERS = st.sampled_from(["a", "b", None, 1, 1.0, -1, -2])


@st.composite
def judgements(draw: st.DrawFn) -> dict[str, int]:
    """What a judge cost; nothing where none was asked, or its server did not count."""
    counts = {"judge_input_tokens": draw(st.integers(0, 9)), "judge_output_tokens": draw(st.integers(1, 9))}
    return {name: count for name, count in counts.items() if draw(st.booleans())}


@st.composite
def failed_judgements(draw: st.DrawFn) -> Failure:
    usage = {"input_tokens": draw(st.integers(1, 9)), "output_tokens": draw(st.integers(0, 9))}
    response = {"output": [], "usage": usage}
    return Failure(failure_class="judge_invalid", reason="?", response=response, extra=draw(judgements()))


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    kind = draw(st.sampled_from(["right"] * 4 + ["masked", "unscored", "omitted", "failed", "terminal", "cut"]))
    extra: dict[str, Any] = {"extracted_answer": draw(ANSWERS), **draw(judgements())}
    usage = {"input_tokens": draw(st.integers(1, 9)), "output_tokens": draw(st.integers(0, 9))}
    match kind:
        case "right" | "masked":
            reward = draw(st.sampled_from([0.0, 1.0, 0.0, 1.0, 0.1, 0.7]))
            return answered(reward, masked=kind == "masked", usage=usage, extra=extra)
        case "unscored":
            return answered(None, usage=usage, extra=extra)
        case "omitted":
            return Omitted(reason="asked for")
        case "cut":
            return None
        case _:
            return Failure(failure_class="agent_run_error", reason="x", terminal=kind == "terminal")


@st.composite
def histories(draw: st.DrawFn) -> dict[tuple[int, int], list[Outcome]]:
    """Of every rollout its attempts: those before the last one failed or were cut; none: it was never begun."""
    tasks, repeats = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    earlier = st.sampled_from([None, Failure(failure_class="agent_run_error", reason="x")]) | failed_judgements()
    found: dict[tuple[int, int], list[Outcome]] = {}
    for task in range(tasks):
        for repeat in range(repeats):
            before = draw(st.lists(earlier, max_size=2))
            found[task, repeat] = [] if draw(st.integers(0, 9)) == 0 else [*before, draw(outcomes())]
    return found


@settings(max_examples=40, deadline=None)
@given(histories(), st.integers(1, 3))
def test_every_number_is_the_one_a_recount_finds(found: dict[tuple[int, int], list[Outcome]], shards: int) -> None:
    tasks, repeats = max(task for task, _ in found) + 1, max(repeat for _, repeat in found) + 1
    with tempfile.TemporaryDirectory() as folder:
        made = plan(Path(folder) / "b", shards=min(shards, tasks), tasks=tasks, repeats=repeats, round_robin=True)
        fill_all(made, lambda task, repeat: found[task, repeat], order=-1)

        report = merge_paths([made.directory], Path(folder) / "out.jsonl", allow_partial=True)

        recount = Recount(shard.rollouts for shard in made.shards)
        stem = report.target.with_suffix("")
        coverage = json.loads(Path(f"{stem}_coverage.json").read_bytes())
        entry = json.loads(Path(f"{stem}_aggregate_metrics.json").read_bytes())[0]
        rows = [json.loads(line) for line in report.target.read_text().split("\n") if line]
        assert rows == [recount.rows[key] for key in sorted(recount.rows)]
        check_coverage(coverage, recount)
        check_metrics(entry, recount, repeats)


def check_coverage(coverage: dict[str, Any], recount: Recount) -> None:
    rewards = [reward for task in recount.rewards().values() for reward in task]
    assert {state: count for state, count in coverage["states"].items() if count} == dict(recount.states)
    assert coverage["expected"] == recount.expected
    assert coverage["mean_reward"] == (math.fsum(rewards) / len(rewards) if rewards else None)
    if rewards:
        unmeasured = recount.expected - len(rewards)
        total = math.fsum(rewards)
        assert coverage["mean_reward_bounds"] == [total / recount.expected, (total + unmeasured) / recount.expected]


def check_metrics(entry: dict[str, Any], recount: Recount, repeats: int) -> None:
    metrics = entry["agent_metrics"]
    for field in ("reward", "input_tokens", "output_tokens"):
        values = recount.values(field)
        if values:
            assert {k: metrics[f"{k}/{field}"] for k in figures(values)} == pytest.approx(figures(values), abs=1e-14)
            assert metrics[f"mean/{field}"] == math.fsum(values) / len(values)
    check_repeats(entry, recount, repeats)
    check_family(metrics, recount)
    performance = entry["perf_summary"]
    if recount.seconds:
        assert performance["attempts/elapsed_s/count"] == len(recount.seconds)
        assert performance["attempts/elapsed_s/mean"] == pytest.approx(sum(recount.seconds) / len(recount.seconds))
    tokens = recount.values("output_tokens")
    assert performance.get("selected/output_tokens/total", 0) == sum(tokens)
    for name in ("input_tokens", "output_tokens", "judge_input_tokens", "judge_output_tokens"):
        assert performance.get(f"attempts/{name}/total", 0) == recount.cost(name)


def check_repeats(entry: dict[str, Any], recount: Recount, repeats: int) -> None:
    entries = entry["repeat_level_metrics"]
    assert len(entries) == (repeats if repeats > 1 else 0)
    means: list[float] = []
    for found in entries:
        values = recount.values("reward", found["_ng_rollout_index"])
        if not values:
            assert found.get("mean/reward") is None
            continue
        means.append(math.fsum(values) / len(values))
        assert found["mean/reward"] == means[-1]
        if len(values) > 1:
            assert (found["ci_low_95/reward"], found["ci_high_95/reward"]) == pytest.approx(interval(values, 0, 1))
    if len(means) > 1:
        across = {name: entry["agent_metrics"][f"{name}_across_repeats/mean/reward"] for name in ("mean", "median", "std")}
        assert across == pytest.approx({name: figures(means)[name] for name in across}, abs=1e-14)
        ends = [entry["agent_metrics"][f"ci_{end}_95_across_repeats/mean/reward"] for end in ("low", "high")]
        assert tuple(ends) == pytest.approx(interval(means, 0, 1))


def check_family(metrics: dict[str, Any], recount: Recount) -> None:
    rewards, answers = recount.rewards(), recount.answers()
    is_binary = all(reward in (0, 1) for task in rewards.values() for reward in task)
    for k in range(1, max(map(len, rewards.values()), default=0) + 1):
        enough = {task: scores for task, scores in rewards.items() if len(scores) >= k}
        best = [share_with_a_right_one(s, k) if is_binary else max(s[:k]) for s in enough.values()]
        assert metrics[f"pass@{k}/reward"] == pytest.approx(100 * sum(best) / len(best))
        first = [sum(scores[:k]) / k for scores in enough.values()]
        assert metrics[f"pass@1[avg-of-{k}]/reward"] == pytest.approx(100 * sum(first) / len(first))
        voted = [majority(answers[task][:k]) for task in enough]
        assert metrics[f"majority@{k}/reward"] == pytest.approx(100 * sum(voted) / len(voted))
        silent = [[float(answer is None) for answer, _ in answers[task]] for task in enough]
        none = [share_with_a_right_one(task, k) for task in silent]
        assert metrics[f"pass@{k}/no_answer"] == pytest.approx(100 * sum(none) / len(none))
