"""The creation of a run directory: staged beside its place and renamed into it, or found made already."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from collector import durable
from collector.errors import RefusedError, StorageError
from collector.formats.inventory import Inventory
from collector.formats.manifest import Manifest, ShardPlace
from collector.preparation.prepare import new_manifest, write_new_shard
from collector.settings import RunSettings
from orchestrate.masked_config import masked_yaml
from orchestrate.runs.directory import RunDir, check_same_run, publish_plan, publish_resolved_config, read_plan
from orchestrate.runs.plan import BenchmarkPlan, Source, SubmitPlan, deal


def create_run(plan: SubmitPlan, sources: Mapping[str, Source], settings: Mapping[str, RunSettings]) -> RunDir:
    """Make the run directory of ``plan``, or find it made.

    Raises RefusedError when another experiment has the name or the place may not be written, StorageError when it cannot be.
    """
    run = RunDir(plan.config.job.output_path.absolute() / plan.name)
    try:
        return _create(run, plan, sources, settings)
    except PermissionError as error:
        what = f"the run cannot be created: {error.strerror}."
        raise RefusedError(
            what, "Choose another job.output_path, or ask for write access.", error.filename or run.root
        ) from error
    except OSError as error:
        what = f"the run cannot be created: {error.strerror}."
        raise StorageError(what, "Choose another job.output_path, or mend that.", run.root) from error


def _create(run: RunDir, plan: SubmitPlan, sources: Mapping[str, Source], settings: Mapping[str, RunSettings]) -> RunDir:
    if (existing := _existing(run)) is not None:
        check_same_run(existing, plan, run)
        return run
    try:
        with durable.staged_dir(run.root) as staging:
            _fill(RunDir(staging), plan, sources, settings)
    except OSError:
        # Somebody else created the same run in the meantime; theirs is as good.
        if (existing := _existing(run)) is None:
            raise
        check_same_run(existing, plan, run)
    return run


def _existing(run: RunDir) -> SubmitPlan | None:
    if run.plan.exists():
        return read_plan(run)
    if run.root.exists() or run.root.is_symlink():
        raise RefusedError("this exists and is not a run.", "Choose another job.name or job.output_path.", run.root)
    return None


def _fill(run: RunDir, plan: SubmitPlan, sources: Mapping[str, Source], settings: Mapping[str, RunSettings]) -> None:
    for benchmark in plan.benchmarks:
        for directory in (run.logs(benchmark), run.jobs(benchmark)):
            durable.make_dir(directory)
        _fill_shards(run, benchmark, sources[benchmark.name], settings[benchmark.name])
    durable.publish(run.submissions, b"")
    publish_resolved_config(run, plan)
    publish_plan(run, plan)


def _fill_shards(run: RunDir, benchmark: BenchmarkPlan, source: Source, settings: RunSettings) -> None:
    digest, expected = benchmark.inventory_digest, benchmark.expected
    # Digesting the experiment once is enough: a thousand shards would each look for plug-ins otherwise.
    whole = new_manifest(settings, source.inventory, benchmark=benchmark.name, targets=source.targets, run_id=benchmark.run_id)
    config = masked_yaml(settings)
    with _by_position(run.benchmark(benchmark) / "whole.jsonl", source.inventory) as line:
        for index, hand in enumerate(deal(expected, benchmark.shards, seed=digest)):
            place = ShardPlace(index=index, count=benchmark.shards, whole_digest=digest, whole_expected=expected)
            write_new_shard(run.shard(benchmark, index), map(line, hand), part_of(whole, place), config)


def part_of(whole: Manifest, place: ShardPlace | None) -> Callable[[int, str], Manifest]:
    """Makes the manifest of one shard from the number of its rollouts and the digest of its inventory."""
    return lambda expected, digest: whole.model_copy(update={"expected": expected, "inventory_digest": digest, "shard": place})


@contextmanager
def _by_position(path: Path, lines: Iterable[bytes]) -> Generator[Callable[[int], bytes]]:
    """Each of ``lines`` by its number, for as long as they lie at ``path``: a shard's are all over the dataset."""
    durable.write_new_lines(path, lines)
    inventory = Inventory(path)
    try:
        yield inventory.line
    finally:
        inventory.close()
        durable.remove(path)
