"""Every saved rollouts file in NeMo Gym's own package, read in each way there is: done, or refused for a true reason.

Prints the table of ``docs/nemo-gym.md``.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.formats.manifest import Manifest
from collector.preparation.legacy import import_legacy
from collector.shard.store import RolloutStore
from exporters.registry import make_exporter
from merge.command import merge_paths
from merge.health.run import check_health
from tests.support.requirements import require
from tests.support.wheel import missing_wheel, unpack_with_companions

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

#: What a refusal says, and what is true of the file.
REASONS = {
    "_ng_task_index": "rows without `_ng_task_index`, written before NeMo Gym stamped them",
    "expected a JSON value": "a Git LFS pointer instead of rows",
    "invalid JSON": "a Git LFS pointer instead of rows",
    "has two results": "one rollout has two rows",
    "occurs a second time": "one rollout has two rows",
    "the observation has gaps": "its trajectory says that it has gaps",
    "no ng_trajectory or response": "rows with neither a trajectory nor a response",
    "it is of agent": "rows of two agents in one file",
}


def resumed(path: Path, folder: Path) -> str | None:
    """Taken over as a run, with the inventory beside it, or one made of its own rows where the package ships none."""
    artifacts, shipped = RunArtifacts(folder / "rollouts.jsonl"), RunArtifacts(path).inventory
    shutil.copy(path, artifacts.rollouts)
    if shipped.is_file():
        shutil.copy(shipped, artifacts.inventory)
    elif (problem := _make_inventory(artifacts)) is not None:
        return problem
    wanted = Manifest(
        run_id="r", benchmark="b", created_at="", expected=1, source_digest="", inventory_digest="", config_digest="", config={}
    )
    import_legacy(artifacts, wanted)
    with RolloutStore.read(artifacts) as store:
        assert len(store.inventory) == artifacts.inventory.read_bytes().count(b"\n")
    return None


def _make_inventory(artifacts: RunArtifacts) -> str | None:
    seen: dict[tuple[int, int], bytes] = {}
    for line in artifacts.rollouts.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            return "expected a JSON value"
        place = (row.get("_ng_task_index"), row.get("_ng_rollout_index"))
        if None in place:
            return "_ng_task_index"
        seen[place] = json.dumps({"_ng_task_index": place[0], "_ng_rollout_index": place[1]}).encode() + b"\n"
    artifacts.inventory.write_bytes(b"".join(seen.values()))
    return None


def aggregated(path: Path, folder: Path) -> str | None:
    merge_paths([path], folder / path.name, allow_partial=True)
    return None


def checked(path: Path, folder: Path) -> str | None:
    shutil.copy(path, folder / "rollouts.jsonl")
    check_health(RunArtifacts(folder / "rollouts.jsonl"), workers=1)
    return None


def exported(path: Path, folder: Path) -> str | None:
    values = {"output_dirpath": folder / "out", "session_id": "s", "agent_version": "1.0.0"}
    result = make_exporter("atif", values, RunArtifacts(path)).export(RunArtifacts(path))
    return None if result.is_success else result.message


WAYS: dict[str, Callable[[Path, Path], str | None]] = {
    "resume (`allow_unsafe_resume`)": resumed,
    "`aggregate`": aggregated,
    "`health-check`": checked,
    "`export atif`": exported,
}


def test_every_saved_file_is_read_in_every_way_or_refused_for_a_true_reason(tmp_path: Path) -> None:
    require("NeMo Gym's examples", missing_wheel())
    (tmp_path / "files").mkdir()
    paths = unpack_with_companions(tmp_path / "files")
    lines = ["| way | files | read | refused |", "| --- | --- | --- | --- |"]

    for number, (way, read) in enumerate(WAYS.items()):
        refused: Counter[str] = Counter()
        for position, path in enumerate(paths):
            folder = tmp_path / f"{number}-{position}"
            folder.mkdir()
            try:
                problem = read(path, folder)
            except GymEvalError as error:
                problem = str(error)
            if problem is not None:
                refused[reason_of(problem)] += 1
            shutil.rmtree(folder)
        told = "; ".join(f"{count}: {reason}" for reason, count in sorted(refused.items(), key=lambda item: -item[1])) or "none"
        lines.append(f"| {way} | {len(paths)} | {len(paths) - refused.total()} | {told} |")

    print("\n".join(lines))
    assert len(paths) > 150


def reason_of(problem: str) -> str:
    """The reason that is known for ``problem``; a problem without one is a refusal that nobody has looked at."""
    found = [reason for words, reason in REASONS.items() if words in problem]
    assert found, problem
    return found[0]
