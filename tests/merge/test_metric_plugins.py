"""Metrics of other people's packages: found by entry point, named in the file, and refused when their figures are none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from merge.command import merge_paths
from merge.publication.generation import Reporting
from merge.publication.projection_check import ProjectionState, check_projection
from orchestrate.cli.main import main
from tests.merge.build import Plan, answered, fill, fill_all, plan, prepare_only

SOURCE = """
import math, numpy
from merge.plugins import Metric

class Spread(Metric):
    def compute(self, table):
        rewards = [reward for reward in table.column("reward") if reward == reward]
        return {"range": max(rewards) - min(rewards), "rows": len(table.keys), "unknown": None}

class Broken(Metric):
    def compute(self, table):
        return {"x": math.nan}

class Flag(Metric):
    def compute(self, table):
        return {"x": True}

class Endless(Metric):
    def compute(self, table):
        return {"x": 10**400}

class Raises(Metric):
    def compute(self, table):
        raise KeyError("loss")

class Leaves(Metric):
    def compute(self, table):
        raise SystemExit(0)

class Listed(Metric):
    def compute(self, table):
        return [1]

class Needy(Metric):
    def __init__(self, more):
        pass
    def compute(self, table):
        return {}

class Mean(Metric):
    def compute(self, table):
        return {"reward": 12.0}

class Sorts(Metric):
    def compute(self, table):
        values = table.column("reward")
        values[:] = type(values)("d", sorted(values, reverse=True))
        table.keys[0] = 5 << 32
        return {"large": 2**70, "odd\\ud800": 1, "numpy": numpy.float64(0.5)}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    package = tmp_path / "site"
    info = package / "other_people-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "other_people_metrics.py").write_text(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-people\nVersion: 1.0\n")
    names = re.findall(r"class (\w+)\(Metric\)", SOURCE)
    entries = "".join(f"{name.lower()} = other_people_metrics:{name}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[gym_eval.metrics]\n{entries}")
    monkeypatch.syspath_prepend(str(package))
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda task, _: answered(task / 4))
    return made


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.suffix != ".lock"}


def test_figures_of_a_package_stand_under_its_name(made: Plan) -> None:
    code = main(["eval", "aggregate", str(made.directory), "-o", str(made.merged.rollouts), "+metrics=[spread]"])

    metrics = json.loads(made.merged.aggregate.read_bytes())[0]["agent_metrics"]
    assert code == 0
    assert {name: value for name, value in metrics.items() if name.startswith("spread/")} == {
        "spread/range": 0.75, "spread/rows": 4, "spread/unknown": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("broken", "metric 'broken' gives nan for 'x'"),
        ("spraed", "unknown metric 'spraed'. Did you mean 'spread'"),
        ("flag", "metric 'flag' gives True for 'x'"),
        ("endless", "metric 'endless' gives 1000.* for 'x'"),
        ("raises", r"metric 'raises' ended with KeyError: 'loss' \(.*other_people_metrics.py, line \d+\)"),
        ("leaves", "metric 'leaves' ended with SystemExit: 0"),
        ("listed", "metric 'listed' gives a list"),
        ("needy", "metric 'needy' ended with TypeError"),
        ("mean", "metric 'mean' gives mean/reward, which is there already"),
    ],
)
def test_a_metric_that_cannot_be_used_is_named_and_no_receipt_is_written(made: Plan, name: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        merge_paths([made.directory], made.merged.rollouts, reporting=Reporting(plugins=(name,)))

    assert not made.merged.receipt.exists()


@pytest.mark.parametrize("with_rows", [True, False], ids=["merge", "reports-only"])
def test_a_metric_that_fails_leaves_the_result_before_it_as_it_was(made: Plan, with_rows: bool) -> None:
    target = made.directory / "r.jsonl"
    merge_paths([made.directory], target)
    before = files_of(made.directory)

    with pytest.raises(ConfigError, match="raises"):
        merge_paths([made.directory], target, reporting=Reporting(plugins=("raises",)), with_rows=with_rows)

    assert files_of(made.directory) == before
    assert check_projection(RunArtifacts(target)).state is ProjectionState.VERIFIED


def test_a_whole_merge_that_fails_keeps_the_partial_result(made: Plan, tmp_path: Path) -> None:
    later = plan(tmp_path / "later", shards=2, tasks=4)
    fill(later, 0, lambda *_: answered())
    prepare_only(later, 1)
    partial = merge_paths([later.directory], later.merged.rollouts, allow_partial=True).target
    before = files_of(later.directory)
    fill(later, 1, lambda *_: answered())

    with pytest.raises(ConfigError, match="raises"):
        merge_paths([later.directory], later.merged.rollouts, reporting=Reporting(plugins=("raises",)))
    assert files_of(later.directory) == before

    merge_paths([later.directory], later.merged.rollouts)
    assert not partial.exists()


def test_what_a_metric_does_to_its_table_changes_no_other_figure(made: Plan) -> None:
    """One that sorted a column in place gave every task the reward of another."""
    merge_paths([made.directory], made.merged.rollouts)
    (before,) = json.loads(made.merged.aggregate.read_bytes())

    merge_paths([made.directory], made.merged.rollouts, reporting=Reporting(plugins=("sorts", "spread")))

    (after,) = json.loads(made.merged.aggregate.read_bytes())
    added = {name: value for name, value in after["agent_metrics"].items() if name not in before["agent_metrics"]}
    assert after["group_level_metrics"] == before["group_level_metrics"]
    assert added == {
        "sorts/numpy": 0.5, "sorts/large": float(2**70), "sorts/odd\\ud800": 1, "spread/range": 0.75, "spread/rows": 4, "spread/unknown": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "word",
    ["+metrics=[a", "+subset_key={a: b", "+subset_key=a: b: c", "+subset_key=!!x y", "+subset_key=[a]", "+input_glob=[a]"],
)
def test_a_key_whose_value_cannot_be_read_is_told(made: Plan, capsys: pytest.CaptureFixture[str], word: str) -> None:
    code = main(["eval", "aggregate", str(made.directory), "-o", str(made.merged.rollouts), word])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert line.startswith(f"gym eval aggregate: {word[1:].partition('=')[0]} ")
    assert not made.merged.rollouts.exists()
