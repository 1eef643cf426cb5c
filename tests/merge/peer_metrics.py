"""Run by a Python that has NeMo Gym: its own metrics of the rollouts files named on stdin, as one JSON line a file."""

import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
from nemo_gym.reward_profile import compute_aggregate_metrics, compute_pass_majority_metrics  # noqa: E402


def tasks_of(rows: list[dict]) -> list[list[dict]]:
    groups: dict[int, list[dict]] = {}
    for row in sorted(rows, key=lambda row: row["_ng_rollout_index"]):
        if not row.get("mask_sample") and "reward" in row:
            groups.setdefault(row["_ng_task_index"], []).append(row)
    return [groups[task] for task in sorted(groups)]


for name in sys.stdin.read().split("\n"):
    if not name:
        continue
    rows = [json.loads(line) for line in Path(name).read_text().split("\n") if line.strip()]
    answer = "extracted_answer" if any("extracted_answer" in row for row in rows) else None
    try:
        found = compute_aggregate_metrics(rows).model_dump(mode="json")
        passes = compute_pass_majority_metrics(tasks_of(rows), lambda row: {"reward": row["reward"]}, answer)[0]
    except Exception as error:  # noqa: BLE001 - whatever it says of a file is its answer
        print(json.dumps({"file": name, "error": f"{type(error).__name__}: {error}"}))
        continue
    passes.pop("per_sample_aggregate", None)
    print(
        json.dumps(
            {
                "file": name,
                "agent_metrics": found["agent_metrics"],
                "passes": passes,
                "repeats": found["repeat_level_metrics"],
                "perf": found.get("perf_summary") or {},
            }
        )
    )
