"""The Python interface: submit, open again after a restart, and one bad shard among good ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collector.errors import ConfigError, NotFoundError
from orchestrate.api import Run, open_run, submit
from tests.orchestrate.project import Project
from tests.support import testkit

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    testkit.install()
    for name, value in project.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.root)
    project.benchmark("math", tasks=8, shards=2)
    return project


def test_a_submitted_run_is_waited_for_and_read(project: Project) -> None:
    run = submit(project.write())

    found = run.wait(timeout_s=90)

    assert found.is_settled
    assert run.coverage()["math"].mean == 0.75
    assert [row.data["_ng_task_index"] for row in run.rollouts()] == list(range(8))
    assert list(run.failures()) == []
    assert run.report().benchmarks[0].measured == 8


def test_a_mapping_and_overrides_do_what_a_file_does(project: Project) -> None:
    from_file = submit(project.write("eval.yaml"), ["driver.benchmarks.math.shards=4"])
    again = submit(project.config, ["driver.benchmarks.math.shards=4"])

    assert from_file.path == again.path
    assert len(again.status().benchmarks[0].shards) == 4
    again.wait(timeout_s=90)


def test_a_run_survives_the_process_that_submitted_it(project: Project) -> None:
    program = "import sys; from orchestrate.api import submit; print(submit(sys.argv[1]).path)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(project.write())], capture_output=True, text=True, check=True, cwd=project.root
    )

    run = open_run(done.stdout.strip())
    found = run.wait(timeout_s=90)

    assert found.benchmarks[0].measured == 8
    assert open_run(run.name) == run


def test_one_broken_shard_raises_for_nobody(project: Project) -> None:
    run = submit(project.write())
    run.wait(timeout_s=90)
    merged, *_ = run.path.glob("math/rollouts.jsonl")
    merged.unlink()
    shard = run.path / "math" / "shards" / "0-of-2"
    for name in ("rollouts_attempts.jsonl", "rollouts.jsonl", "rollouts_failures.jsonl"):
        (shard / name).write_bytes(b"garbage\n" + (shard / name).read_bytes())

    rows = list(run.rollouts())

    assert run.coverage()["math"].measured == 4
    assert [row.trouble is None for row in rows].count(True) == 8
    assert [(row.trouble or "").partition(" (")[0] for row in rows if row.trouble] == [
        f"{shard / 'rollouts.jsonl'}:1: not JSON"
    ]
    assert len([row for row in run.failures() if row.trouble]) == 1
    assert "rollouts_attempts.jsonl" in run.report().troubles[0]
    assert "rollouts_attempts.jsonl:1" in (run.status().benchmarks[0].shards[0].trouble or "")


def test_what_is_wrong_is_raised_before_anything_exists(project: Project) -> None:
    project.config["driver"]["benchmarks"]["math"]["run"]["num_repeatz"] = 2

    with pytest.raises(ConfigError, match="num_repeatz"):
        submit(project.config)
    with pytest.raises(NotFoundError):
        open_run("nope")
    assert not project.runs.exists()


def test_a_benchmark_that_is_not_there_is_told(project: Project) -> None:
    run: Run = submit(project.write())
    run.wait(timeout_s=90)

    with pytest.raises(NotFoundError, match="There are: math"):
        next(run.rollouts("physics"))


def test_a_wait_ends_in_time_and_leaves_the_jobs(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=1)
    run = submit(project.write())

    with pytest.raises(TimeoutError, match="its jobs go on"):
        run.wait(timeout_s=0.1)
    assert run.wait(timeout_s=90).benchmarks[0].measured == 8
