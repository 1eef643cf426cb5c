"""A submit command that dies just before any of its disk calls: the next one finds no run or a whole one, and no job twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from orchestrate.config.compose import compose_file
from orchestrate.config.load import load_config
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.submission.submit import Submittal, gather, make_plan, submit
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project
from tests.support import testkit
from tests.support.crash import run_in_fork


@pytest.fixture
def submitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Project, FakeSlurm, Callable[[], Submittal]]:
    testkit.install()
    fake = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", fake.env["PATH"])
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1h"})
    project.benchmark("a", tasks=4, shards=2)
    project.benchmark("b", tasks=2)
    path = project.write()

    def work() -> Submittal:
        loaded = load_config(compose_file(path, []), where=path, environ=os.environ)
        sources = gather(loaded)
        return submit(make_plan(loaded, sources, path, new=False), loaded, sources)

    return project, fake, work


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_every_crash_point_leaves_something_that_the_next_submit_completes(
    submitting: tuple[Project, FakeSlurm, Callable[[], Submittal]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, fake, work = submitting
    # A batch whose answer was lost before the deadline stays open; here its time is over at once.
    monkeypatch.setattr("orchestrate.submission.submit_work.DEADLINE_S", -1.0)
    monkeypatch.setattr("orchestrate.submission.submit_work._LOOKS", (0.0,))
    done: list[Submittal] = []
    # How many disk calls there are differs from run to run (names are random, processes have their own pace): the end is a
    # child that lived.
    for fatal in count(1):
        shutil.rmtree(project.runs, ignore_errors=True)
        (fake.directory / "jobs").unlink(missing_ok=True)
        status, _ = run_in_fork(lambda: done.append(work()), fatal)
        if not os.WIFSIGNALED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        visible = [path for path in project.runs.iterdir() if not path.name.startswith(".")] if project.runs.exists() else []
        assert all(read_plan(RunDir(path)) for path in visible), f"half a run after disk call {fatal}"

        result = work()

        assert result.troubles == {}, f"after disk call {fatal}"
        per_name = Counter(job_id.partition("_")[0] for job_id, _, _ in fake.jobs())
        assert sorted(per_name.values()) == [1, 2], f"jobs after disk call {fatal}: {fake.jobs()}"
        assert [path.name for path in project.runs.iterdir()] == [result.run.root.name], f"leftovers after disk call {fatal}"

    assert os.waitstatus_to_exitcode(status) == 0
    assert fatal > 50
