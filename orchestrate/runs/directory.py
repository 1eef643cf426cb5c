"""A run directory: the name of every file in it, its plan, and whether two plans are of one run.

A run is created in a hidden directory beside its place and renamed into it, the plan written last: a crash leaves no run or a
complete one. Environment references stay references; no value of a ``host:`` or ``runtime:`` variable is ever written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, NotFoundError, RefusedError, StorageError
from collector.formats.differences import differences
from merge.publication.partial import published_at
from orchestrate.runs.plan import FORMAT, BenchmarkPlan, SubmitPlan


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one run. ``root`` is absolute."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def resolved_config(self) -> Path:
        return self.root / "resolved-config.yaml"

    @property
    def record(self) -> Path:
        return self.root / "gym-job.json"

    @property
    def submissions(self) -> Path:
        return self.root / "submissions.jsonl"

    @property
    def submit_lock(self) -> Path:
        return self.root / "submit.lock"

    @property
    def shard_facts(self) -> Path:
        return self.root / "shard-facts.json"

    def benchmark(self, plan: BenchmarkPlan) -> Path:
        """Where everything of one benchmark lies."""
        return self.root / plan.slug

    def merged(self, plan: BenchmarkPlan) -> RunArtifacts:
        """The projection of a benchmark's shards and its companions."""
        return RunArtifacts(self.benchmark(plan) / "rollouts.jsonl")

    def result(self, plan: BenchmarkPlan) -> RunArtifacts:
        """What is published of a benchmark: its projection, or a partial one as long as it has no other."""
        return published_at(self.merged(plan))

    def shard(self, plan: BenchmarkPlan, index: int) -> RunArtifacts:
        """The files of one shard."""
        return RunArtifacts(self.benchmark(plan) / "shards" / plan.shard_directory(index) / "rollouts.jsonl")

    def generation(self, plan: BenchmarkPlan, number: int) -> Path:
        """The shards that resubmission ``number`` added."""
        return self.benchmark(plan) / "shards" / f"g{number}"

    def shards(self, plan: BenchmarkPlan) -> list[RunArtifacts]:
        """The files of every shard, by index."""
        shards = self.benchmark(plan) / "shards"
        return [RunArtifacts(shards.joinpath(plan.shard_directory(n), "rollouts.jsonl")) for n in range(plan.shards)]

    def logs(self, plan: BenchmarkPlan | None) -> Path:
        """Where the output of jobs and services goes: with the benchmark; None is for jobs that fill several shards."""
        return self._shared(plan) / "logs"

    def jobs(self, plan: BenchmarkPlan | None) -> Path:
        """One directory per submission: the script and the tasks it runs."""
        return self._shared(plan) / "jobs"

    def _shared(self, plan: BenchmarkPlan | None) -> Path:
        return self.root / "packs" if plan is None else self.benchmark(plan)

    def slot(self, number: int) -> Path:
        """The lock of one local slot; as many jobs run at once as there are slots."""
        return self.root / "slots" / f"{number}.lock"

    def begun(self, job_id: str) -> Path:
        """There once a job of this machine has had a slot; until then it waits for one."""
        return self.root / "slots" / f"{job_id.replace(':', '-')}.begun"


def read_plan(run: RunDir) -> SubmitPlan:
    """The plan of ``run``. Raises NotFoundError when there is none, CorruptArtifactError when it is not one."""
    try:
        value = jsonl.loads(run.plan.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("there is no run here.", "A run directory has a plan.json.", run.root) from error
    except PermissionError as error:
        fix = "Ask its owner: a plan with literal values of variables is its owner's alone."
        raise RefusedError("the run's plan may not be read by you.", fix, run.plan) from error
    except OSError as error:
        raise StorageError(f"the run's plan cannot be read: {error.strerror}.", "Restore it.", run.plan) from error
    except ValueError as error:
        raise CorruptArtifactError(run.plan, 0, f"not JSON ({error}).") from error
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != FORMAT:
        what = f"plan format {version!r} is not supported (this program reads format {FORMAT})."
        raise CorruptArtifactError(run.plan, 0, what, "Use the version of gym-eval that wrote it.")
    try:
        return SubmitPlan.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise CorruptArtifactError(run.plan, 0, f"not a plan ({problems}).") from error


def refresh_plan(run: RunDir, plan: SubmitPlan) -> SubmitPlan:
    """Give jobs that start from now on the connection, compute, retry and export settings of ``plan``; the rest is frozen.

    Called under the submit lock, with a plan of the same identity.
    """
    saved = read_plan(run)
    merged = refreshed(saved, plan)
    if merged != saved:
        publish_resolved_config(run, merged)
        publish_plan(run, merged)
    return merged


def publish_resolved_config(run: RunDir, plan: SubmitPlan) -> None:
    """Write the configuration as the run uses it; it can be submitted again as it stands."""
    # Code that only reads runs does without it.
    import yaml  # noqa: PLC0415

    data = plan.config.model_dump(mode="json")
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    durable.publish(run.resolved_config, text.encode(), mode=0o600)


def publish_plan(run: RunDir, plan: SubmitPlan) -> None:
    """Replace the plan of ``run``. Called under the submit lock."""
    durable.publish(run.plan, plan.encode(), mode=_plan_mode(plan))


def refreshed(saved: SubmitPlan, plan: SubmitPlan) -> SubmitPlan:
    """What ``refresh_plan`` makes of a saved plan."""
    exports = {fresh.name: fresh.export for fresh in plan.benchmarks}
    benchmarks = [old.model_copy(update={"export": exports[old.name]}) for old in saved.benchmarks]
    kept = {"config", "cwd", "config_file", "config_file_digest"}
    return saved.model_copy(update={**{key: getattr(plan, key) for key in kept}, "benchmarks": benchmarks})


def check_same_run(saved: SubmitPlan, wanted: SubmitPlan, run: RunDir) -> None:
    """Raise RefusedError with every difference unless both plans describe one experiment."""
    if saved.identity_digest == wanted.identity_digest:
        return
    found = differences(saved.identity, wanted.identity)
    shown = "; ".join(difference.shown for difference in found[:10])
    more = f"; and {len(found) - 10} more" if len(found) > 10 else ""
    raise RefusedError(
        f"this run belongs to another experiment: {shown}{more}.",
        "Choose another job.name, or --new for a run beside it.",
        run.root,
    )


def _plan_mode(plan: SubmitPlan) -> int | None:
    """Only the owner reads a plan with literal values of environment variables; others can be asked for their status."""
    services = plan.config.services.values()
    maps = [plan.config.driver.env, *(service.env for service in services if service.type != "external")]
    has_literals = any(value.startswith("lit:") for entries in maps for value in entries.values())
    return 0o600 if has_literals else None
