"""What follows the last shard of a benchmark: one projection with its coverage and metrics, and the configured exports."""

from __future__ import annotations

from collections.abc import Mapping

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError, UnavailableError
from collector.settings import RunSettings
from collector.text.counted import counted
from exporters.ledger import Ledger
from exporters.registry import make_exporter
from exporters.tail import TailResult, finish_benchmark
from merge.publication.partial import partial_name
from merge.publication.receipt import read_receipt
from merge.tail import MergeState
from orchestrate.health import choose_health
from orchestrate.masked_config import publish_config
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan
from orchestrate.runs.standing import is_older


def finish(run: RunDir, benchmark: BenchmarkPlan, settings: RunSettings, *, with_exports: bool = True) -> TailResult:
    """Merge and export the benchmark if every shard is final. Repeating it repeats nothing that was done.

    Without exports somebody else has to call it again with them.
    """
    merged = run.merged(benchmark)
    # Before the merge: once the projection stands, everything that an export sends stands beside it.
    publish_config(merged, _recorded(settings, merged))
    return finish_benchmark(
        merged,
        run.shards(benchmark),
        benchmark=benchmark.name,
        retry=settings.retry,
        exports=benchmark.export if with_exports else {},
        health=choose_health(settings),
    )


def finish_partly(run: RunDir, benchmark: BenchmarkPlan, settings: RunSettings) -> TailResult:
    """Like ``finish``, and where shards are not final publish what there is, labelled partial.

    A partial result goes to exporters whose settings say ``allow_partial: true``, and to no other.
    """
    result = finish(run, benchmark, settings)
    if result.state is not MergeState.WAITING:
        return result
    merged = run.merged(benchmark)
    publish_config(RunArtifacts(partial_name(merged.rollouts)), _recorded(settings, merged))
    return finish_benchmark(
        merged,
        run.shards(benchmark),
        benchmark=benchmark.name,
        retry=settings.retry,
        exports={name: values for name, values in benchmark.export.items() if values.get("allow_partial") is True},
        allow_partial=True,
    )


def _recorded(settings: RunSettings, merged: RunArtifacts) -> RunSettings:
    """What stands beside a result: alike whoever publishes it, or a tracker would be sent the same result as a new version.

    A shard's job has an output and a key of its own; the finisher has neither.
    """
    return settings.model_copy(update={"output_jsonl_fpath": merged.rollouts, "policy_api_key": None})


def lines_of(result: TailResult, run: RunDir, benchmark: BenchmarkPlan) -> list[str]:
    """What was done, for a log."""
    if result.state is MergeState.WAITING:
        return [f"the benchmark waits for other shards: {counted(result.coverage.unfinished, 'rollout')} unfinished"]
    is_partial = result.receipt is not None and result.receipt.partial
    label = " (partial)" if is_partial else ""
    left_out = [name for name in benchmark.export if is_partial and name not in result.exports]
    published = result.published or run.merged(benchmark)
    merged = f"{result.state.replace('_', ' ')}{label}: {published.rollouts}"
    checked = [result.health] if result.health is not None else []
    exported = [line for name, export in result.exports.items() for line in export.lines(name)]
    told = [f"Export {name}: not made of a partial result; allow_partial: true in its settings would" for name in left_out]
    return [merged, *checked, *exported, *told]


def check_exports(result: TailResult, where: str) -> None:
    """Raise UnavailableError when an export failed; the evaluation itself is whole."""
    failed = [name for name, export in result.exports.items() if not export.is_success]
    if failed:
        reasons = "; ".join(f"{name}: {result.exports[name].message}" for name in failed)
        raise UnavailableError(f"an export failed: {reasons}", "Submit again: it repeats only what is missing.", where)


def is_finished(run: RunDir, benchmark: BenchmarkPlan, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the benchmark is merged whole, as its shards are now, and every export arrived. False when files cannot tell.

    ``environ`` are the variables by which jobs export; None: those of this process.
    """
    merged = run.result(benchmark)
    try:
        receipt = read_receipt(merged.receipt)
        if receipt is None or receipt.partial or is_older(run, benchmark, merged):
            return False
        for name, values in benchmark.export.items():
            exporter = make_exporter(name, values, merged, environ=environ)
            ledger = Ledger(merged, name, exporter.destination, receipt.output.sha256)
            last = ledger.last()
            if last is None or last.event != "succeeded":
                return False
    except GymEvalError:
        return False
    return True
