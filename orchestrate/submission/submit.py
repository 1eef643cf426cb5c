"""The submit command without its printing: plan, create, settle what is unclear, submit what is missing, record it.

Order: the run directory, the receipt of a batch, the batch itself, its answer, the record ``gym-job.json``. Repeated on a run
it submits only those shards that need a job.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from collector import durable
from collector.errors import UnavailableError
from collector.preparation.materialize import materialize
from collector.preparation.prepare import experiment_of, validate_rows
from orchestrate.config.load import Loaded
from orchestrate.executors.base import JobBatch, executor_for
from orchestrate.runs.creation import create_run
from orchestrate.runs.directory import RunDir, check_same_run, read_plan, refresh_plan, refreshed
from orchestrate.runs.generations import complete_resubmission
from orchestrate.runs.lock import submit_lock
from orchestrate.runs.plan import Source, SubmitPlan, plan_submission
from orchestrate.runs.submissions import ShardNeed, read_submissions
from orchestrate.submission.batches import finisher_batch, missing_units, shard_batches
from orchestrate.submission.needs import Needs, ask_needs
from orchestrate.submission.refusals import what_to_do
from orchestrate.submission.submit_work import Submittal, Work, now
from orchestrate.version import package_version


def gather(loaded: Loaded) -> dict[str, Source]:
    """Read and check every dataset. Raises DatasetError, NoTasksError or ConfigError; writes nothing."""
    found: dict[str, Source] = {}
    for name, settings in loaded.runs.items():
        inventory = materialize(settings)
        targets = validate_rows(settings, inventory)
        found[name] = Source(inventory, experiment_of(settings, targets), targets)
    return found


def make_plan(loaded: Loaded, sources: Mapping[str, Source], config_file: Path, *, new: bool) -> SubmitPlan:
    """The plan that the configuration asks for; with ``new`` it is a run of its own whatever exists."""
    return plan_submission(
        loaded,
        sources,
        config_file=config_file.absolute(),
        cwd=Path.cwd(),
        version=package_version(),
        now=now(),
        suffix=secrets.token_hex(3) if new else "",
    )


def submit(plan: SubmitPlan, loaded: Loaded, sources: Mapping[str, Source]) -> Submittal:
    """Make the run exist and give a job to each shard that needs one. Raises UnavailableError before creating anything."""
    executor_for(RunDir(plan.config.job.output_path.absolute() / plan.name), plan).check()
    run = create_run(plan, sources, loaded.runs)
    return submit_missing(run, plan)


def submit_missing(run: RunDir, plan: SubmitPlan) -> Submittal:
    """Give a job to each shard of an existing run that needs one. Raises RefusedError while another command submits to it."""
    with submit_lock(run):
        # A creation that crashed left its hidden directory; one that is still at work finds the run made, and is content.
        durable.sweep(run.root)
        complete_resubmission(run)
        plan = refresh_plan(run, plan)
        return Work(run, plan, executor_for(run, plan)).do()


def planned_batches(plan: SubmitPlan) -> tuple[Path, list[tuple[JobBatch, str]]]:
    """The run directory, and each batch with its script, that ``submit`` would make now. Asks the scheduler, writes nothing."""
    run = RunDir(plan.config.job.output_path.absolute() / plan.name)
    if run.plan.exists():
        saved = read_plan(run)
        check_same_run(saved, plan, run)
        plan = refreshed(saved, plan)
    executor = executor_for(run, plan)
    everything = Needs({b.name: dict.fromkeys(range(b.shards), ShardNeed.JOB) for b in plan.benchmarks})
    needs = ask_needs(run, plan, executor, read_submissions(run.submissions)) if run.plan.exists() else everything
    missing = missing_units(plan, needs)
    found = list(shard_batches(plan, missing, executor.batch_limit())) if missing else []
    if executor.has_finishers:
        names = {unit.benchmark.name for unit in missing} - needs.finishing
        found += [finisher_batch(plan, b, ("<jobs above>",)) for b in plan.benchmarks if b.name in names]
    return run.root, [(batch, executor.preview(batch)) for batch in found]


def check_complete(result: Submittal, *, again: str = "run the same command again") -> None:
    """Raise UnavailableError that names each benchmark with a shard that should have a job and has none.

    ``again`` says which command submits it when what is wrong is mended.
    """
    if result.troubles:
        told = "; ".join(f"{name}: {reason}" for name, reason in result.troubles.items())
        cure = what_to_do(result.troubles.values(), again)
        raise UnavailableError(f"not everything was submitted: {told}.", cure, result.run.root)
