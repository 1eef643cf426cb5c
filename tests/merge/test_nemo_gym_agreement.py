"""Every rollouts file in NeMo Gym's own package: aggregated or refused for a true reason, with the figures its own code finds.

Needs the wheel of nemo-gym 0.7.0 (``GYM_EVAL_NEMO_WHEEL``) and, to compare figures, a Python that has it installed
(``GYM_EVAL_NEMO_PYTHON``).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, RefusedError
from merge.command import merge_paths
from tests.support.requirements import require

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
#: Why a file may be refused, and how often it is so in 0.7.0.
REASONS = {
    "Object missing required field `_ng_task_index`": 61,
    "expected a JSON value": 4,
    "companion of a run": 22,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    wheel = os.environ.get("GYM_EVAL_NEMO_WHEEL", "")
    require("this test", [] if wheel and Path(wheel).is_file() else ["GYM_EVAL_NEMO_WHEEL, the wheel of nemo-gym 0.7.0"])
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".jsonl") and "rollouts" in name.rsplit("/", 1)[1]]
        archive.extractall(folder, names)
    return sorted(folder / name for name in names)


@pytest.fixture(scope="module")
def merged(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[Path, Path], Counter[str]]:
    """Each file that can be aggregated with its target, and why the others cannot."""
    folder = tmp_path_factory.mktemp("merged")
    targets: dict[Path, Path] = {}
    refused: Counter[str] = Counter()
    for number, path in enumerate(files):
        try:
            targets[path] = merge_paths([path], folder / str(number) / path.name, allow_partial=True).target
        except (CorruptArtifactError, RefusedError) as error:
            refused[next((reason for reason in REASONS if reason in str(error)), str(error))] += 1
    return targets, refused


def test_every_file_is_aggregated_or_refused_for_a_true_reason(
    files: list[Path], merged: tuple[dict[Path, Path], Counter[str]]
) -> None:
    targets, refused = merged

    assert refused == REASONS
    assert len(targets) + refused.total() == len(files)


def is_explained(name: str, theirs: float, found: dict[str, Any]) -> bool:
    """The differences that docs/metrics.md lists."""
    rewards = (found.get("min/reward", 0), found.get("max/reward", 0))
    if name.startswith(("pass@", "majority@")):
        # Percentages of rewards outside [0, 1], votes on answers that are not there, and tasks with fewer than k rollouts.
        has_family = rewards[0] >= 0 and rewards[1] <= 1
        return not has_family or name.endswith("/no_answer") or "[avg-of-" in name
    if name.startswith("ci_low_95"):
        return theirs < 0 and found[name] == 0
    return name.startswith("ci_high_95") and theirs > 1 and found[name] == 1


def peers(targets: dict[Path, Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    python = os.environ.get("GYM_EVAL_NEMO_PYTHON", "")
    require("this test", [] if python else ["GYM_EVAL_NEMO_PYTHON, a Python with nemo-gym 0.7.0"])
    names = "\n".join(map(str, targets))
    done = subprocess.run([python, HERE / "peer_metrics.py"], input=names, text=True, capture_output=True, check=True)
    for line in done.stdout.splitlines():
        found = json.loads(line)
        yield Path(found["file"]), found


@pytest.mark.timeout(300)
def test_figures_agree_with_nemo_gym_wherever_definitions_do(merged: tuple[dict[Path, Path], Counter[str]]) -> None:
    targets, _ = merged
    same, unexplained = 0, []
    for path, peer in peers(targets):
        entries = json.loads(RunArtifacts(targets[path]).aggregate.read_bytes())
        # It refuses doubled rows, identical ones too, and takes several agents of a file for one.
        if "error" in peer or len(entries) > 1:
            continue
        found = {**entries[0]["agent_metrics"], **entries[0]["perf_summary"]}
        for name, theirs in {**peer["agent_metrics"], **peer["passes"], **peer["perf"]}.items():
            if (
                isinstance(theirs, int | float)
                and found.get(name) is not None
                and math.isclose(found[name], theirs, abs_tol=1e-12)
            ):
                same += 1
            elif isinstance(theirs, int | float) and not is_explained(name, theirs, found):
                unexplained.append((path.parent.parent.name, name, theirs, found.get(name)))

    assert unexplained == []
    assert same > 5000
