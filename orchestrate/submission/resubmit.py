"""``gym eval resubmit`` without its printing: what is unfinished is planned anew in further shards and submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from collector.errors import ConfigError, RefusedError
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from collector.state.codes import OPEN_CODES
from collector.state.history import History
from collector.state.retry import may_dispatch
from collector.text.counted import counted
from orchestrate.config.load import settings_of
from orchestrate.executors.base import executor_for
from orchestrate.run_words import shards_in_words
from orchestrate.runs.directory import RunDir
from orchestrate.runs.generations import complete_resubmission, move, shard_locks
from orchestrate.runs.lock import submit_lock
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.submissions import ShardNeed, read_submissions
from orchestrate.submission.needs import ask_needs
from orchestrate.submission.submit_work import Submittal, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rollouts to plan anew, and in how many shards."""

    #: Of each benchmark; None: as many as it had at first, and never more than there are rollouts.
    shards: int | None = None
    #: Only rollouts whose latest attempt failed with this kind or class.
    failed: str | None = None
    #: Also rollouts that failed terminally or whose budget is used up.
    reset_attempts: bool = False


@dataclass(slots=True)
class Resubmission:
    """What a resubmission moves: rollouts and shards by benchmark, and what was submitted; None for a preview."""

    run: RunDir
    #: As it was before.
    plan: SubmitPlan
    rollouts: dict[str, int] = field(default_factory=dict[str, int])
    shards: dict[str, int] = field(default_factory=dict[str, int])
    submittal: Submittal | None = None
    #: Why nothing is moved; empty where something is.
    nothing: str = ""


def resubmit(run: RunDir, wanted: Wanted, *, dry_run: bool = False) -> Resubmission:
    """Move what ``wanted`` names into new shards and submit those. Finished rollouts are untouched.

    Where there are none, the result says why. Raises RefusedError while a job or a collector may own one of the rollouts.
    """
    with submit_lock(run):
        plan = complete_resubmission(run)
        executor = executor_for(run, plan)
        if not dry_run:
            executor.check()
            Work(run, plan, executor).settle_old()
        chosen = {benchmark.name: _choose(run, plan, benchmark, wanted) for benchmark in plan.benchmarks}
        givers = {name: found for name, found in chosen.items() if found}
        if not givers:
            return Resubmission(run, plan, nothing=_why_nothing(run, plan, wanted))
        needs = ask_needs(run, plan, executor, read_submissions(run.submissions)).shards
        _check_free(run, givers, needs)
        result = Resubmission(run, plan)
        for name, found in givers.items():
            result.rollouts[name] = sum(map(len, found.values()))
            result.shards[name] = _shard_count(plan.benchmark(name), result.rollouts[name], wanted.shards)
        if dry_run:
            return result
        with ExitStack() as stack:
            for name, found in givers.items():
                stack.enter_context(shard_locks(run, plan.benchmark(name), list(found)))
            # A collector may have begun and ended since they were read.
            rows = {name: _rows(run, plan, plan.benchmark(name), list(found), wanted) for name, found in givers.items()}
            rows = {name: lines for name, lines in rows.items() if lines}
            plan = move(run, plan, rows, {name: min(result.shards[name], len(lines)) for name, lines in rows.items()})
        result.submittal = Work(run, plan, executor_for(run, plan)).do()
        return result


def selected(history: History, retry: RetrySettings, wanted: Wanted) -> list[int]:
    """The rollouts of one shard that ``wanted`` names, in inventory order. Never one that completed or left the shard."""
    found: list[int] = []
    for index, code in enumerate(history.codes):
        if code not in OPEN_CODES:
            continue
        if not _is_of_kind(history, index, wanted):
            continue
        if wanted.reset_attempts or may_dispatch(history.past(index), retry):
            found.append(index)
    return found


def _is_of_kind(history: History, index: int, wanted: Wanted) -> bool:
    return wanted.failed is None or wanted.failed in {history.kinds.get(index), history.classes.get(index)}


def _choose(run: RunDir, plan: SubmitPlan, benchmark: BenchmarkPlan, wanted: Wanted) -> dict[int, list[int]]:
    """Shard index to the indices of the rollouts that leave it."""
    retry = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts).retry
    found: dict[int, list[int]] = {}
    for shard in range(benchmark.shards):
        with RolloutStore.read(run.shard(benchmark, shard)) as store:
            if chosen := selected(store.history, retry, wanted):
                found[shard] = chosen
    return found


def _rows(run: RunDir, plan: SubmitPlan, benchmark: BenchmarkPlan, givers: list[int], wanted: Wanted) -> list[bytes]:
    """The inventory rows of what leaves the shards ``givers``, in the order of the benchmark."""
    retry = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts).retry
    rows: list[tuple[int, int, bytes]] = []
    for shard in givers:
        with RolloutStore.read(run.shard(benchmark, shard)) as store:
            inventory = store.inventory
            rows += [
                (inventory.task(i), inventory.repeat(i), inventory.line(i)) for i in selected(store.history, retry, wanted)
            ]
    return [line for _, _, line in sorted(rows)]


def _check_free(
    run: RunDir, givers: Mapping[str, Mapping[int, list[int]]], needs: Mapping[str, Mapping[int, ShardNeed]]
) -> None:
    def having(*kinds: ShardNeed) -> str:
        found = {name: [shard for shard in shards if needs[name][shard] in kinds] for name, shards in givers.items()}
        return ", ".join(f"{name} {shards_in_words(shards)}" for name, shards in found.items() if shards)

    live, uncertain = having(ShardNeed.LIVE), having(ShardNeed.UNCERTAIN)
    told = [f"jobs that wait or run have rollouts of {live}"] if live else []
    told += [f"nobody can say whether a job has rollouts of {uncertain}"] if uncertain else []
    if told:
        cure = f"Wait for them, or cancel them first: gym eval cancel {run.root.name}."
        raise RefusedError(f"{', and '.join(told)}.", cure, run.root)


def _shard_count(benchmark: BenchmarkPlan, rollouts: int, wanted: int | None) -> int:
    if wanted is not None and wanted > rollouts:
        raise ConfigError(
            f"--shards: {counted(wanted, 'shard')} for {counted(rollouts, 'rollout')} of {benchmark.name}.", "Ask for fewer."
        )
    return min(benchmark.first_shards, rollouts) if wanted is None else wanted


def _why_nothing(run: RunDir, plan: SubmitPlan, wanted: Wanted) -> str:
    """Why ``wanted`` names no rollout, and what would."""
    unfinished, left, kinds = 0, 0, Counter[str]()
    for benchmark in plan.benchmarks:
        for shard in run.shards(benchmark):
            with RolloutStore.read(shard) as store:
                history = store.history
                found = [index for index, code in enumerate(history.codes) if code in OPEN_CODES]
                unfinished += len(found)
                left += sum(_is_of_kind(history, index, wanted) for index in found)
                kinds.update(history.kinds.values())
    if not unfinished:
        return "nothing is unfinished."
    if not left:
        there = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "none"
        return f"no unfinished rollout has {wanted.failed!r} as its latest failure; failures there are: {there}."
    many = counted(left, "rollout")
    return f"{many} failed for good or used up their attempts: --reset-attempts takes {'it' if left == 1 else 'them'}, too."
