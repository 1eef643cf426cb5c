"""Metrics of other people's packages: found by entry point, named in the file, and refused when their figures are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.errors import ConfigError
from merge.command import merge_paths
from merge.generation import Reporting
from orchestrate.cli.main import main
from tests.merge.build import Plan, answered, fill_all, plan

SOURCE = """
import math
from merge.plugins import Metric

class Spread(Metric):
    def compute(self, table):
        rewards = [reward for reward in table.column("reward") if reward == reward]
        return {"range": max(rewards) - min(rewards), "rows": len(table.keys), "unknown": None}

class Broken(Metric):
    def compute(self, table):
        return {"x": math.nan}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    package = tmp_path / "site"
    info = package / "other_people-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "other_people_metrics.py").write_text(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-people\nVersion: 1.0\n")
    entries = "spread = other_people_metrics:Spread\nbroken = other_people_metrics:Broken\n"
    (info / "entry_points.txt").write_text(f"[gym_eval.metrics]\n{entries}")
    monkeypatch.syspath_prepend(str(package))
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda task, _: answered(task / 4))
    return made


def test_figures_of_a_package_stand_under_its_name(made: Plan) -> None:
    code = main(["eval", "aggregate", str(made.directory), "-o", str(made.merged.rollouts), "+metrics=[spread]"])

    metrics = json.loads(made.merged.aggregate.read_bytes())[0]["agent_metrics"]
    assert code == 0
    assert {name: value for name, value in metrics.items() if name.startswith("spread/")} == {
        "spread/range": 0.75, "spread/rows": 4, "spread/unknown": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "match"),
    [("broken", "metric 'broken' gives nan for 'x'"), ("spraed", "unknown metric 'spraed'. Did you mean 'spread'")],
)
def test_a_metric_that_cannot_be_used_is_named_and_no_receipt_is_written(made: Plan, name: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        merge_paths([made.directory], made.merged.rollouts, reporting=Reporting(plugins=(name,)))

    assert not made.merged.receipt.exists()
