"""A merge or a tail that is killed at any of its disk calls, and the one that comes after it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from merge.command import merge_paths
from merge.publication.projection_check import ProjectionState, check_projection
from tests.merge import jobs
from tests.merge.build import Plan, answered, fill, fill_all, plan, prepare_only

#: More than any of these runs makes; the last ones pass without a crash, which ends the loop.
_MOST_CALLS = 120


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda task, _: answered(float(task % 2)))
    return made


def tree(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob(".*.tmp") if "shards" not in path.parts]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_merge_killed_at_any_disk_call_leaves_the_old_target_or_the_new_one(made: Plan, tmp_path: Path) -> None:
    target = made.merged.rollouts
    arguments = {"inputs": [str(made.directory)], "target": str(target)}
    assert jobs.run(-1, tmp_path / "log", "merge", arguments) == 0
    new = target.read_bytes()
    shards = tree(made.directory / "shards")
    for n in range(int((tmp_path / "log").read_text())):
        target.write_bytes(b"old\n")
        made.merged.receipt.unlink(missing_ok=True)

        assert jobs.run(n, tmp_path / "log2", "merge", arguments) == -9

        assert target.read_bytes() in {b"old\n", new}, n
        check = check_projection(made.merged)
        assert check.state in {ProjectionState.ABSENT, ProjectionState.VERIFIED}, (n, check)
        assert tree(made.directory / "shards") == shards
    assert jobs.run(-1, tmp_path / "log", "merge", arguments) == 0
    assert not temporaries(made.directory)
    assert check_projection(made.merged).state is ProjectionState.VERIFIED


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_whole_merge_killed_at_any_disk_call_never_stands_beside_the_partial_one(tmp_path: Path) -> None:
    """Readers take the partial result where it has a receipt: behind a whole one it would hide what was measured since."""
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill(made, 0, lambda *_: answered())
    prepare_only(made, 1)
    partial = merge_paths([made.directory], made.merged.rollouts, allow_partial=True).target
    before = {path: path.read_bytes() for path in made.directory.iterdir() if path.is_file()}
    fill(made, 1, lambda *_: answered())
    arguments = {"inputs": [str(made.directory)], "target": str(made.merged.rollouts)}
    for n in range(_MOST_CALLS):
        for path in made.directory.iterdir():
            if path.is_file():
                path.unlink()
        for path, data in before.items():
            path.write_bytes(data)

        killed = jobs.run(n, tmp_path / "log", "merge", arguments)

        assert not (RunArtifacts(partial).receipt.exists() and made.merged.receipt.exists()), n
        if killed == 0:
            assert not partial.exists()
            return
    raise AssertionError("the merge makes more disk calls than this test tries")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_tail_killed_at_any_disk_call_is_finished_by_the_next_one(made: Plan, tmp_path: Path) -> None:
    shards = [str(shard.rollouts) for shard in made.shards]
    wanted = {}
    for n in range(_MOST_CALLS):
        target = made.directory / f"m{n}.jsonl"
        folder = tmp_path / f"atif{n}"
        exports = {"atif": {"output_dirpath": str(folder), "agent_version": "1", "session_id": "s"}}
        arguments = {"target": str(target), "shards": shards, "exports": exports}

        killed = jobs.run(n, tmp_path / "log", "finish", arguments)
        result = jobs.finish(**arguments)

        found = {**{p.name.removeprefix(f"m{n}"): p.read_bytes() for p in made.directory.glob(f"m{n}[._]*json*")}}
        found.pop("_exports.jsonl")
        found.pop("_merge.json")
        found |= {path.name: path.read_bytes() for path in folder.iterdir()}
        wanted = wanted or found
        assert found == wanted, n
        assert result.exports["atif"].is_success, (n, result.exports["atif"].message)
        assert not temporaries(tmp_path), n
        if killed == 0:
            return
    raise AssertionError("the tail makes more disk calls than this test tries")
