"""How a job on its shard ends: signals are heeded, the first error is the one told, and the outcome goes before the exports."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector import collect
from collector.errors import ServiceError, UnavailableError
from collector.shard.lock import ShardLock
from collector.stop import StopReason, StopRequest
from orchestrate.jobs.job import Job
from orchestrate.runs.directory import RunDir
from orchestrate.services.endpoint import Endpoint
from orchestrate.services.group import ServiceGroup
from tests.orchestrate.project import Project, tree
from tests.support import testkit
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})


def job_states(project: Project) -> set[str]:
    return {shard["job_state"] for shard in project.status()["benchmarks"][0]["shards"]}


def python(project: Project, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in the project's folder, as a job would."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=project.root, env=project.environment(), capture_output=True, text=True, check=False
    )


def test_a_signal_that_comes_while_the_services_stop_is_heeded(project: Project) -> None:
    stubborn = project.service()
    stubborn["command"] = ["bash", "-c", 'trap "sleep 4" TERM; "$@" & wait', "-", *stubborn["command"]]
    project.config["services"] = {"policy": project.service(delay=0.1, exit_after=4), "other": stubborn | {"stop_grace_s": 5}}
    project.benchmark("math", tasks=10, num_samples_in_parallel=1)
    project.submit()
    pid = project.status()["benchmarks"][0]["shards"][0]["job_id"].split(":")[1]
    wait_for(lambda: any("service_died" in path.read_text() for path in project.run_dir.rglob("*_attempts.jsonl")), 60)

    os.kill(int(pid), signal.SIGTERM)

    wait_for(lambda: job_states(project) == {"GONE"}, 60)
    assert "unfinished (terminated)" in project.logs()
    assert "(restart" not in project.logs()


def test_what_cannot_be_published_does_not_hide_why_the_job_failed(project: Project) -> None:
    block = f"for run in {project.runs}/*/math; do mkdir $run/rollouts.jsonl; done; exit 3"
    project.config["services"]["policy"]["command"] = ["bash", "-c", block]
    project.benchmark("math", tasks=2)

    project.submit()

    wait_for(lambda: job_states(project) == {"GONE"}, 60)
    assert "what there is was not published" in project.logs()
    assert "gym eval: service policy: ended with exit code 3" in project.logs()


def test_a_job_whose_shard_somebody_else_holds_touches_nothing(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.config["services"]["policy"]["command"] = ["false"]
    project.submit()
    wait_for((project.run_dir / "math" / "rollouts.partial_merge.json").exists, 60)
    wait_for(lambda: job_states(project) == {"GONE"}, 60)

    with ShardLock(project.run_dir / "math" / "shards" / "0-of-1" / "rollouts.jsonl.lock"):
        before = tree(project.run_dir / "math")
        done = python(project, f"from orchestrate.jobs.job import run_shard; run_shard({str(project.run_dir)!r}, 'math', '0')")
        assert tree(project.run_dir / "math") == before

    assert done.returncode == 4, done.stderr


def test_the_outcome_is_told_rather_than_that_of_an_export(project: Project) -> None:
    project.benchmark("math", tasks=2, marks="[[mode: 400]]")
    blocked = project.root / "blocked"
    blocked.write_text("a file where a folder should be")
    project.config["export"] = {"atif": {"agent_version": "1.0.0", "output_dirpath": str(blocked / "atif")}}

    project.submit()
    wait_for(lambda: job_states(project) == {"GONE"}, 60)
    run = "from orchestrate.jobs.finisher import Finisher; from orchestrate.jobs.processes import ProcessTable"
    start = f"run = RunDir(Path({str(project.run_dir)!r})); Finisher(run, 'math', 't', scheduler=ProcessTable(run)).run()"
    done = python(project, f"from pathlib import Path; from orchestrate.runs.directory import RunDir; {run}; {start}")

    assert "gym eval: math shard 0 of 1: nothing was measured" in project.logs()
    assert "NothingMeasuredError" in done.stderr


@pytest.mark.parametrize(
    ("is_final", "end", "told"),
    [
        pytest.param(True, ServiceError("ended"), None, id="a-final-shard-wins"),
        pytest.param(False, ServiceError("ended"), ServiceError, id="unfinished"),
        pytest.param(True, RuntimeError("a defect"), RuntimeError, id="no-service-died"),
    ],
)
def test_a_service_that_ends_with_the_last_outcome_is_no_failure(
    project: Project, monkeypatch: pytest.MonkeyPatch, is_final: bool, end: Exception, told: type[Exception] | None
) -> None:
    if not is_final:
        project.config["services"]["policy"]["command"] = ["false"]
    project.benchmark("math", tasks=2)
    project.submit()
    wait_for(lambda: job_states(project) == {"GONE"}, 60)
    testkit.install()
    asked: list[StopRequest] = []

    async def collected(*_: object, stop: StopRequest, **__: object) -> None:
        asked.append(stop)
        await stop.asked()

    class Services(ServiceGroup):
        async def watch(self) -> None:
            await asyncio.sleep(0.05)
            raise end

    async def work() -> None:
        job = Job(RunDir(project.run_dir), [("math", 0)])
        job.shards[0].needs_collector = True
        policy: dict[str, Any] = {"policy": (Endpoint("http://127.0.0.1:1/v1", "test-model"), 1.0)}
        await job._collect(Services({}, policy))  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(collect, "collect", collected)
    if told is None:
        asyncio.run(work())
    else:
        with pytest.raises(told):
            asyncio.run(work())
    assert asked[0].reason == (StopReason.SERVICE_DIED if isinstance(end, ServiceError) else None)


class _Endings(ServiceGroup):
    """Services that are up until ``watch`` says otherwise."""

    def __init__(self, before_the_end: Callable[[], object]) -> None:
        super().__init__({}, {"policy": (Endpoint("http://127.0.0.1:1/v1", "test-model"), 1.0)})
        self._before_the_end = before_the_end

    async def wait_ready(self, probe: object, say: object = None) -> None:
        """They are."""

    async def watch(self) -> None:
        await asyncio.sleep(0.05)
        self._before_the_end()
        raise ServiceError("ended")


def unfinished(project: Project) -> None:
    """A run whose only job has ended and left everything to do."""
    project.config["services"]["policy"]["command"] = ["false"]
    project.benchmark("math", tasks=2)
    project.submit()
    wait_for(lambda: job_states(project) == {"GONE"}, 60)
    testkit.install()


def test_a_service_that_ends_after_the_time_is_over_does_not_keep_the_job_from_the_queue(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished(project)

    async def collected(*_: object, stop: StopRequest, **__: object) -> None:
        await stop.asked()

    async def work() -> Job:
        job = Job(RunDir(project.run_dir), [("math", 0)])
        job.shards[0].needs_collector = True
        services = _Endings(lambda: job.stops.signal(StopReason.TIME_LIMIT, margin_s=1.0))

        def given(*_: object, **__: object) -> ServiceGroup:
            return services

        monkeypatch.setattr("orchestrate.jobs.job.group_of", given)
        await job._serve_and_collect()  # pyright: ignore[reportPrivateUsage]
        return job

    monkeypatch.setattr(collect, "collect", collected)
    job = asyncio.run(work())

    assert job.shards[0].error is None
    assert job.stops.reason is StopReason.TIME_LIMIT


def test_a_service_that_ends_under_a_collector_is_told_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished(project)
    untold: list[object] = []

    async def collected(*_: object, **__: object) -> None:
        raise UnavailableError("nobody answers.")

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: untold.append(context))
        job = Job(RunDir(project.run_dir), [("math", 0)])
        job.shards[0].needs_collector = True
        services = _Endings(lambda: None)
        monkeypatch.setattr(services, "check_alive", lambda: (_ for _ in ()).throw(ServiceError("ended")))
        with pytest.raises(ServiceError):
            await job._collect(services)  # pyright: ignore[reportPrivateUsage]
        gc.collect()

    monkeypatch.setattr(collect, "collect", collected)
    asyncio.run(work())

    assert untold == []
