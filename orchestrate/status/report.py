"""The report of a run as values: shards, benchmarks and the run, with what they mean together. Nothing is read here."""

from __future__ import annotations

from itertools import chain

from pydantic import Field

from collector.settings import StrictModel
from collector.state.coverage import Coverage
from exporters.ledger import Standing
from orchestrate.scheduler import JobFact, Knowledge
from orchestrate.services.waits import ServiceWait


class ShardReport(StrictModel):
    """One shard. ``knowledge`` and ``job_state`` are the scheduler's words of its newest job, null when it never had one."""

    index: int
    expected: int
    completed: int = 0
    failed: int = 0
    final: bool = False
    sessions: int = 0
    job_id: str | None = None
    knowledge: Knowledge | None = None
    job_state: str | None = None
    detail: str = ""
    #: Seconds since the shard's last journal event; null before its first.
    age_s: float | None = None
    #: The services that its running job waits for, as the job tells them.
    waits: list[ServiceWait] = Field(default_factory=list[ServiceWait])
    #: Why the shard's files cannot be read.
    trouble: str | None = None

    @property
    def is_left_alone(self) -> bool:
        """Whether there is something left to do and the newest job has certainly ended."""
        return not self.final and self.knowledge is not None and JobFact(self.knowledge, self.job_state or "").is_over


class ExportReport(StrictModel):
    """One configured export: whether the merged rows as they stand arrived, and where or why not."""

    name: str
    standing: Standing
    detail: str = ""


class BenchmarkReport(StrictModel):
    """One benchmark: the coverage, in which rollouts of shards that cannot be read are unknown, and each shard."""

    name: str
    coverage: Coverage | None
    mean_reward: float | None
    #: The mean if every unmeasured rollout had reward 0, and 1; null unless all rewards lie in [0, 1].
    mean_reward_bounds: tuple[float, float] | None = None
    measured: int
    expected: int
    merged: str | None
    #: The merged file leaves out rollouts that were unfinished when it was made.
    merged_partially: bool = False
    #: The shards recorded more since the merged file was made.
    merged_is_older: bool = False
    #: The whole result of before, beside a partial one of shards that were opened again; null when there is none.
    older_result: str | None = None
    exports: list[ExportReport] = Field(default_factory=list)
    #: The scheduler's word for the job that publishes what the shards leave; null when there is none.
    finisher_state: str | None = None
    #: Submissions of unfinished shards that the scheduler refused or never answered, each with its reason.
    submission_troubles: list[str] = Field(default_factory=list)
    #: Why jobs ended before the work of their shards did, in their own words; none while each unfinished shard has a job.
    job_endings: list[str] = Field(default_factory=list)
    shards: list[ShardReport]

    @property
    def age_s(self) -> float | None:
        """Seconds since anything happened in one of the shards; None before the first event."""
        return min((shard.age_s for shard in self.shards if shard.age_s is not None), default=None)

    @property
    def waits_by_service(self) -> dict[str, list[ServiceWait]]:
        """The services that running jobs wait for, with the wait of each job."""
        # A packed job stands there once for each of its shards.
        of_job = {shard.job_id: shard.waits for shard in self.shards if shard.waits}
        found: dict[str, list[ServiceWait]] = {}
        for wait in chain.from_iterable(of_job.values()):
            found.setdefault(wait.service, []).append(wait)
        return found

    @property
    def left_alone(self) -> list[ShardReport]:
        """Unfinished shards without a job that would go on."""
        return [shard for shard in self.shards if shard.is_left_alone]

    @property
    def is_published(self) -> bool:
        """Whether the whole benchmark is merged, as its shards are now, and each export arrived."""
        arrived = all(export.standing is Standing.SUCCEEDED for export in self.exports)
        return self.merged is not None and not self.merged_partially and not self.merged_is_older and arrived

    @property
    def is_final(self) -> bool:
        """Whether nothing of the benchmark may be dispatched any more."""
        return all(shard.final for shard in self.shards)


class RunReport(StrictModel):
    """Everything ``gym eval status`` shows."""

    name: str
    run_dir: str
    asked_at: str
    #: Why the scheduler could not be asked; null when it answered.
    scheduler_trouble: str | None
    benchmarks: list[BenchmarkReport] = Field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """Whether nothing of the run may be dispatched any more."""
        return all(benchmark.is_final for benchmark in self.benchmarks)

    @property
    def is_settled(self) -> bool:
        """Whether all is final and merged and no job is left that would add to it."""
        is_merged = all(benchmark.merged for benchmark in self.benchmarks)
        return self.is_final and is_merged and not self.has_live_jobs and not self.has_live_finisher

    @property
    def has_live_jobs(self) -> bool:
        """Whether a job is queued or running, or may be because the scheduler could not be asked."""
        shards = [shard for benchmark in self.benchmarks for shard in benchmark.shards]
        return any(
            shard.knowledge is Knowledge.COULD_NOT_ASK
            or (shard.knowledge is Knowledge.KNOWN and JobFact(Knowledge.KNOWN, shard.job_state or "").is_live)
            for shard in shards
        )

    @property
    def has_live_finisher(self) -> bool:
        """Whether a job that would still publish or export a benchmark is queued or running."""
        waiting = [benchmark for benchmark in self.benchmarks if not benchmark.is_published]
        return any(JobFact(Knowledge.KNOWN, benchmark.finisher_state or "").is_live for benchmark in waiting)
