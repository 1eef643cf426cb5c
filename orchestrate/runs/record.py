"""``gym-job.json``: what was submitted, in the layout that NeMo Gym users and their scripts know."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from collector import durable
from collector.settings import StrictModel
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import SubmitPlan
from orchestrate.runs.submissions import Submission, latest_jobs


class BenchmarkJob(StrictModel):
    """One benchmark: exactly one of ``job_id`` and ``error`` is set. An array's id has no index."""

    benchmark: str
    job_dir: str
    job_id: str | None = None
    error: str | None = None


class JobRecord(StrictModel):
    """The record of the last submission to a run, format 1."""

    gym_job_id: str
    gym_version: str
    gym_commit: str | None = None
    submitted_at: str
    run_dir: str
    cluster: str
    executor: str
    submitted_by: str
    benchmarks: list[BenchmarkJob]
    hostname: str
    executor_metadata: dict[str, Any] = Field(default_factory=dict)
    schema_version: Literal[1] = 1


def make_record(run: RunDir, plan: SubmitPlan, troubles: Mapping[str, str], submissions: Sequence[Submission]) -> JobRecord:
    """The record of ``run`` after its last submission."""
    jobs: list[BenchmarkJob] = []
    for benchmark in plan.benchmarks:
        ids = latest_jobs(submissions, benchmark.name).values()
        bases = list(dict.fromkeys(job_id.partition("_")[0] for job_id in ids))
        error = troubles.get(benchmark.name) if not bases else None
        if bases or error:
            directory = str(run.benchmark(benchmark))
            jobs.append(BenchmarkJob(benchmark=benchmark.name, job_dir=directory, job_id=",".join(bases) or None, error=error))
    return JobRecord(
        gym_job_id=plan.name,
        gym_version=plan.version,
        submitted_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        run_dir=str(run.root),
        cluster=next(iter(plan.config.compute)),
        executor=plan.config.the_compute.type,
        submitted_by=_user(),
        benchmarks=jobs,
        hostname=socket.gethostname(),
        executor_metadata={"jobs": {job.benchmark: latest_jobs(submissions, job.benchmark) for job in jobs}},
    )


def publish(run: RunDir, record: JobRecord) -> None:
    """Write the record of ``run``."""
    durable.publish(run.record, record.model_dump_json(indent=2).encode() + b"\n")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
