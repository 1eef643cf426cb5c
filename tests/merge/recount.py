"""A recount of a metrics file in plain Python over the rows and events of shards; nothing of the product's code is used."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

from scipy import stats


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


class Recount:
    """What ``shards`` (rollouts paths) say, read the slow way."""

    def __init__(self, shards: Iterable[Path]) -> None:
        self.rows: dict[tuple[int, int], dict[str, Any]] = {}
        self.states: Counter[str] = Counter()
        self.expected = 0
        self.seconds: list[float] = []
        #: Of every attempt with an outcome, its row.
        self.attempts: list[dict[str, Any]] = []
        for shard in shards:
            self._read(shard)

    def _read(self, shard: Path) -> None:
        folder = shard.parent
        inventory = read(folder / "rollouts_materialized_inputs.jsonl")
        events = read(folder / "rollouts_attempts.jsonl")
        data = shard.read_bytes()
        self.expected += len(inventory)
        self.seconds += [e["elapsed_s"] for e in events if e["event"] in ("success", "failure") and e["elapsed_s"] is not None]
        files = {"success": data, "failure": (folder / "rollouts_failures.jsonl").read_bytes()}
        for e in events:
            if e["event"] in files:
                self.attempts.append(json.loads(files[e["event"]][e["offset"] : e["offset"] + e["length"]]))
        latest: dict[str, tuple[int, dict[str, Any] | None]] = {}
        for event in events:
            if event["event"] == "dispatched":
                latest[event["rollout_id"]] = (event["attempt_index"], None)
            elif event["event"] in ("success", "failure", "omitted"):
                latest[event["rollout_id"]] = (event["attempt_index"], event)
        for line in inventory:
            task, repeat = line["_ng_task_index"], line["_ng_rollout_index"]
            attempt, event = latest.get(f"{task}-{repeat}", (-1, None))
            self.states[self._state(attempt, event)] += 1
            if event is not None and event["event"] == "success":
                self.rows[task, repeat] = json.loads(data[event["offset"] : event["offset"] + event["length"]])

    def _state(self, attempt: int, event: dict[str, Any] | None) -> str:
        if attempt < 0:
            return "never_dispatched"
        if event is None:
            return "exhausted" if attempt == 2 else "unknown"
        if event["event"] == "omitted":
            return "omitted"
        if event["event"] == "failure":
            return "exhausted" if attempt == 2 and not event["terminal"] else "failed"
        return "masked" if event.get("masked") else "unscored" if event["reward"] is None else "measured"

    def rewards(self) -> dict[int, list[float]]:
        """Measured rewards by task, in the order of repeats."""
        found: dict[int, list[float]] = {}
        for (task, _), row in sorted(self.rows.items()):
            if not row["mask_sample"] and "reward" in row:
                found.setdefault(task, []).append(row["reward"])
        return found

    def values(self, field: str, repeat: int | None = None) -> list[float]:
        rows = [r for (_, n), r in sorted(self.rows.items()) if not r["mask_sample"] and repeat in (None, n)]
        found = [row.get(field, row["response"]["usage"].get(field)) for row in rows]
        return [float(value) for value in found if isinstance(value, int | float)]

    def cost(self, name: str) -> float:
        """A count of tokens summed over all attempts: the policy's from the usage, a judge's from the row."""
        found = [row if name.startswith("judge") else (row.get("response") or {}).get("usage", {}) for row in self.attempts]
        return sum(counts.get(name, 0) for counts in found)

    def answers(self) -> dict[int, list[tuple[Any, float]]]:
        found: dict[int, list[tuple[Any, float]]] = {}
        for (task, _), row in sorted(self.rows.items()):
            if not row["mask_sample"] and "reward" in row:
                found.setdefault(task, []).append((row.get("extracted_answer"), row["reward"]))
        return found


def figures(values: list[float]) -> dict[str, float | None]:
    return {
        "mean": math.fsum(values) / len(values),
        "max": max(values),
        "min": min(values),
        "median": statistics.median(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


def interval(values: list[float], low: float, high: float) -> tuple[float, float]:
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    reach = stats.t.ppf(0.975, len(values) - 1) * error
    return max(low, mean - reach), min(high, mean + reach)


def share_with_a_right_one(scores: list[float], k: int) -> float:
    """By looking at every choice of ``k``."""
    return sum(1 for chosen in combinations(scores, k) if any(chosen)) / math.comb(len(scores), k)


def majority(pairs: list[tuple[Any, float]]) -> float:
    votes = Counter(pair for pair in pairs if pair[0] is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    return statistics.fmean(reward for (_, reward), count in votes.items() if count == most)
