"""Every example run that NeMo Gym ships: exported and accepted by the public models of ATIF, or refused with a reason.

GYM_EVAL_HARBOR names the Python of an environment with the package harbor.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from exporters.registry import make_exporter
from tests.support.requirements import require
from tests.support.wheel import missing_wheel, unpack_rollouts

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

VALIDATE = """
import pathlib, sys
from harbor.models.trajectories import Trajectory
count = 0
for path in pathlib.Path(sys.argv[1]).rglob("*.json"):
    Trajectory.model_validate_json(path.read_bytes())
    count += 1
print(count)
"""


@pytest.fixture
def example_runs(tmp_path: Path) -> list[Path]:
    require("NeMo Gym's examples", missing_wheel())
    (tmp_path / "runs").mkdir()
    return [path for path in unpack_rollouts(tmp_path / "runs") if path.name.endswith("_rollouts.jsonl")]


@pytest.mark.parametrize("version", ["1.7", "1.8"])
def test_every_shipped_run_is_exported_validly_or_refused_with_its_reason(
    tmp_path: Path, example_runs: list[Path], version: str
) -> None:
    harbor = os.environ.get("GYM_EVAL_HARBOR", "")
    require("harbor", [] if harbor else ["GYM_EVAL_HARBOR"])
    trajectories, refused = 0, Counter[str]()
    for number, path in enumerate(example_runs):
        artifacts = RunArtifacts(path)
        folder = tmp_path / "out" / str(number)
        values = {"output_dirpath": folder, "session_id": "s", "agent_version": "1.0.0", "schema_version": version}
        result = make_exporter("atif", values, artifacts).export(artifacts)
        if result.is_success:
            trajectories += int(result.details[0].removeprefix("trajectories: "))
        else:
            refused[_reason(result.message)] += 1
        assert result.is_success == folder.exists()

    done = subprocess.run([harbor, "-c", VALIDATE, str(tmp_path / "out")], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == trajectories
    exported = len(example_runs) - sum(refused.values())
    print(f"runs {len(example_runs)}: exported {exported} ({trajectories} trajectories), refused {dict(refused)}")
    assert exported > 100


def _reason(message: str) -> str:
    text = re.sub(r".*have no trajectory: line \d+: ", "", message).replace(" Nothing was published.", "")
    return re.sub(r"[0-9]+|'[^']*'", "…", text)[:100]
