"""Resubmission: what is unfinished moves to new shards exactly once, what is finished is untouched, live work is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError, RefusedError
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from merge.inputs.shards import read_shard
from merge.publication.generation import plan_generation
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.submission.resubmit import Wanted, resubmit
from tests.merge.resolve import resolve_sources
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project, tree
from tests.support import testkit
from tests.support.crash import run_in_fork
from tests.support.processes import wait_for


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    testkit.install()
    found = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", found.env["PATH"])
    return found


@pytest.fixture
def submitted(tmp_path: Path, fake: FakeSlurm) -> Project:
    """Two shards of three rollouts whose jobs ended without doing anything."""
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1h"})
    project.benchmark("a", tasks=6, shards=2)
    done = project.gym("submit", str(project.write()), env=fake.env)
    assert done.returncode == 0, done.stderr
    fake.program("squeue", "exit 0")
    return project


def owned(run: RunDir) -> Counter[str]:
    """How often each rollout is some shard's, by what every shard says of itself."""
    (benchmark,) = read_plan(run).benchmarks
    found: Counter[str] = Counter()
    for artifacts in run.shards(benchmark):
        with RolloutStore.read(artifacts) as store:
            found.update(store.inventory.rollout_id(i) for i, code in enumerate(store.history.codes) if code != 8)
            assert store.coverage(RetrySettings()).expected == store.history.owned
    return found


def test_unfinished_rollouts_get_new_shards_and_jobs_of_their_own(submitted: Project, fake: FakeSlurm) -> None:
    done = submitted.gym("resubmit", str(submitted.run_dir), "--shards", "3", env=fake.env)

    assert done.returncode == 0, done.stderr
    assert "moved 6 rollouts to 3 new shards" in done.stdout
    run = RunDir(submitted.run_dir)
    assert set(owned(run).values()) == {1}
    assert sorted(path.name for path in (submitted.run_dir / "a" / "shards" / "g1").iterdir()) == ["0-of-3", "1-of-3", "2-of-3"]
    assert [len(job) for job in (fake.jobs()[2:],)] == [3]


def test_a_preview_changes_nothing(submitted: Project, fake: FakeSlurm) -> None:
    before = tree(submitted.run_dir)

    done = submitted.gym("resubmit", str(submitted.run_dir), "--dry-run", "--json", env=fake.env)

    assert json.loads(done.stdout)["benchmarks"]["a"]["rollouts"] == 6
    after = {path: data for path, data in tree(submitted.run_dir).items() if not path.endswith(".lock")}
    assert after == {path: data for path, data in before.items() if not path.endswith(".lock")}


def test_live_jobs_keep_their_rollouts(submitted: Project, fake: FakeSlurm) -> None:
    fake.program("squeue", f'echo "{fake.jobs()[1][0]}|PENDING|Priority"')
    before = (submitted.run_dir / "plan.json").read_bytes()

    done = submitted.gym("resubmit", str(submitted.run_dir), env=fake.env)

    assert done.returncode == 4
    assert (
        f"jobs that wait or run have rollouts of a shard 1. Wait for them, or cancel them first: gym eval cancel {submitted.run_dir.name}."
        in done.stderr
    )
    assert (submitted.run_dir / "plan.json").read_bytes() == before


def test_a_held_lock_keeps_its_rollouts(submitted: Project, fake: FakeSlurm) -> None:
    from collector.shard.lock import ShardLock

    run = RunDir(submitted.run_dir)
    with ShardLock(run.shard(read_plan(run).benchmarks[0], 1).lock):
        done = submitted.gym("resubmit", str(submitted.run_dir), env=fake.env)

    assert done.returncode == 4
    assert set(owned(run).values()) == {1}
    assert not (submitted.run_dir / "a" / "shards" / "g1").exists()


def test_nobody_is_asked_twice_in_vain(submitted: Project, fake: FakeSlurm) -> None:
    fake.program("squeue", "exit 1")

    done = submitted.gym("resubmit", str(submitted.run_dir), env=fake.env)

    assert done.returncode == 4
    assert not (submitted.run_dir / "a" / "shards" / "g1").exists()


def test_a_second_resubmission_takes_from_every_generation(submitted: Project, fake: FakeSlurm) -> None:
    run = RunDir(submitted.run_dir)

    for count in ("3", "2"):
        assert submitted.gym("resubmit", str(run.root), "--shards", count, env=fake.env).returncode == 0

    (benchmark,) = read_plan(run).benchmarks
    assert set(owned(run).values()) == {1}
    assert (benchmark.generations, benchmark.expected, benchmark.shards) == ([3, 2], 6, 7)
    inputs = resolve_sources([run.root])
    generation = plan_generation(inputs, [read_shard(artifacts, RetrySettings()) for artifacts in inputs.artifacts])
    assert (len(inputs.shards), generation.coverage.expected, generation.coverage.unfinished) == (7, 6, 6)


def test_a_merge_misses_a_generation_that_is_not_there(submitted: Project, fake: FakeSlurm) -> None:
    submitted.gym("resubmit", str(submitted.run_dir), "--shards", "2", env=fake.env)
    shutil.rmtree(submitted.run_dir / "a" / "shards" / "g1" / "1-of-2")

    with pytest.raises(RefusedError, match="hold 3 rollouts and the benchmark has 6"):
        resolve_sources([submitted.run_dir])


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_every_crash_point_leaves_each_rollout_to_one_shard(
    submitted: Project, fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrate.submission.submit_work.DEADLINE_S", -1.0)
    monkeypatch.setattr("orchestrate.submission.submit_work._LOOKS", (0.0,))
    run, saved = RunDir(submitted.run_dir), tmp_path / "saved"
    shutil.copytree(run.root, saved)
    total = run_in_fork(lambda: resubmit(run, Wanted(shards=2)), 0)[1]
    assert total > 20

    for fatal in range(1, total + 1):
        shutil.rmtree(run.root)
        shutil.copytree(saved, run.root)
        status, _ = run_in_fork(lambda: resubmit(run, Wanted(shards=2)), fatal)
        assert os.WTERMSIG(status) == signal.SIGKILL

        try:
            resubmit(run, Wanted(shards=2))
        except GymEvalError as error:
            pytest.fail(f"after disk call {fatal}: {error}")

        assert set(owned(run).values()) == {1}, f"after disk call {fatal}"
        assert owned(run).total() == 6


@pytest.mark.timeout(150)
def test_finished_rollouts_are_not_asked_again(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})
    # The readiness probe is a request too; then the server dies in the middle of the work.
    script = f"""test -e {tmp_path}/mended && set -- "$@" --exit-after=1000; exec "$@" """
    command = project.service(exit_after=4)["command"]
    project.config["services"]["policy"] |= {"command": ["bash", "-c", script, "-", *command], "max_restarts": 0}
    project.benchmark("a", tasks=8, shards=1, num_samples_in_parallel=1)
    project.submit()
    wait_for((project.run_dir / "a" / "rollouts.partial_merge.json").exists, 60)
    first = RunArtifacts(project.run_dir / "a" / "shards" / "0-of-1" / "rollouts.jsonl")
    rows = first.rollouts.read_bytes()
    finished = rows.count(b"\n")
    assert 0 < finished < 8
    (tmp_path / "mended").touch()

    done = project.gym("resubmit", str(project.run_dir), "--shards", "2")

    assert done.returncode == 0, done.stderr
    wait_for((project.run_dir / "a" / "rollouts_merge.json").exists, 60)
    assert first.rollouts.read_bytes() == rows
    assert len((project.run_dir / "a" / "rollouts.jsonl").read_text().splitlines()) == 8
    assert project.status()["benchmarks"][0]["measured"] == 8
    answered = {json.loads(line)["_ng_task_index"] for line in rows.splitlines()}
    asked = Counter(request["task"] for request in project.requests())
    assert all(asked[f"a-{task}"] == 1 for task in answered)
