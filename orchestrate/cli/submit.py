"""``gym eval submit``: a YAML file becomes a run directory and its jobs; repeated, only what is missing is submitted."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser

if TYPE_CHECKING:
    from orchestrate.config.load import Loaded
    from orchestrate.executors.base import JobBatch
    from orchestrate.runs.plan import SubmitPlan
    from orchestrate.submission.datasets import Missing
    from orchestrate.submission.submit_work import Submittal


#: Packed jobs whose shards a preview names.
_JOBS_SHOWN = 8
#: Flags of ``gym eval run`` and the key below a benchmark's ``run`` that says the same in a submission.
_RUN_FLAGS = {
    "--input": "input_jsonl_fpath",
    "--model": "policy_model_name",
    "--model-url": "policy_base_url",
    "--limit": "limit",
    "--num-repeats": "num_repeats",
    "--concurrency": "num_samples_in_parallel",
    "--verifier": "verifier",
    "--temperature": "responses_create_params.temperature",
    "--top-p": "responses_create_params.top_p",
    "--max-output-tokens": "responses_create_params.max_output_tokens",
}


def main(argv: list[str]) -> int:
    """Plan and submit. Refusals, previews and --resolve-only create nothing."""
    args = _parser().parse_intermixed_args(argv)
    config_file, overrides = _words(args)
    from orchestrate.config.compose import compose_data
    from orchestrate.config.load import load_config

    data = compose_data(_read(config_file, args.cluster), overrides, folder=config_file.absolute().parent, where=config_file)
    loaded = load_config(data, where=config_file, environ=os.environ)
    if args.resolve_only:
        print(_resolved(loaded, as_json=args.json), end="")
        return 0
    from orchestrate.cli.submit_there import submitted_there

    if (code := submitted_there(data, config_file, args)) is not None:
        return code
    from orchestrate.cli.submit_notes import tell_notes
    from orchestrate.submission.checks import check_loaded
    from orchestrate.submission.datasets import missing_datasets, prepare_datasets
    from orchestrate.submission.export_settings import settled_exports
    from orchestrate.submission.submit import gather, make_plan, submit

    loaded, left_out = settled_exports(loaded, os.environ)
    check_loaded(loaded, where=config_file)
    if args.dry_run and (missing := missing_datasets(loaded)):
        _preview_datasets(missing, as_json=args.json)
        return 0
    prepare_datasets(loaded)
    sources = gather(loaded)
    plan = make_plan(loaded, sources, config_file, new=args.new)
    tell_notes(loaded.config, left_out)
    if args.dry_run:
        _preview(plan, as_json=args.json)
        return 0
    return _report(submit(plan, loaded, sources), args)


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval submit",
        description="Turn a YAML file into jobs. Example: gym eval submit math.yaml driver.benchmarks.math.shards=8",
        epilog="Overrides: a.b=c changes a key, +a.b=c adds one, ++a.b=c does either, ~a.b removes one.",
        elsewhere={
            flag: f"A submission says it for each benchmark: ++driver.benchmarks.NAME.run.{key}=VALUE."
            for flag, key in _RUN_FLAGS.items()
        },
    )
    parser.add_argument("words", nargs="*", metavar="CONFIG [OVERRIDE ...]", help="the YAML file, then overrides")
    parser.add_argument("-c", "--config", type=Path, help="the YAML file")
    parser.add_argument("--cluster", metavar="NAME", help="take compute from ~/.config/gym-eval/clusters/NAME.yaml")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and each job script; create nothing")
    parser.add_argument("--resolve-only", action="store_true", help="show the configuration as understood; create nothing")
    parser.add_argument("--wait", action="store_true", help="stay until the run is final, then show its scores")
    parser.add_argument("--new", action="store_true", help="start a run of its own beside an existing one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _read(config_file: Path, cluster: str | None) -> dict[str, Any]:
    from orchestrate.config.clusters import with_cluster
    from orchestrate.config.yaml_file import read_yaml

    data = read_yaml(config_file)
    return data if cluster is None else with_cluster(data, cluster)


def _words(args: argparse.Namespace) -> tuple[Path, list[str]]:
    """The file and the overrides. The file is the one word that is no override, wherever it stands."""
    from collector.errors import RequestError

    words: list[str] = args.words
    files = [word for word in words if "=" not in word and not word.startswith("~")]
    if args.config is None and not files:
        # A path may contain =; it is the first word then.
        files = [word for word in words[:1] if Path(word).is_file()]
    if args.config is not None:
        if files:
            raise RequestError(f"{files[0]!r} is no override.", "An override is key=value, +key=value, ++key=value or ~key.")
        return args.config, words
    if not files:
        raise RequestError("no configuration was named.", "Usage: gym eval submit CONFIG [OVERRIDE ...].")
    if len(files) > 1:
        raise RequestError(f"{files[1]!r} is no override.", "An override is key=value, +key=value, ++key=value or ~key.")
    words = list(words)
    words.remove(files[0])
    return Path(files[0]), words


def _resolved(loaded: Loaded, *, as_json: bool) -> str:
    if as_json:
        return loaded.config.model_dump_json(indent=2) + "\n"
    import yaml

    return yaml.safe_dump(loaded.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _preview_datasets(missing: list[Missing], *, as_json: bool) -> None:
    """There is no plan of a dataset that nobody has seen."""
    if as_json:
        import json

        found = [{"benchmark": m.benchmark, "dataset": str(m.dataset), "command": m.command} for m in missing]
        print(json.dumps({"missing_datasets": found}, indent=2))
        return
    print("\n".join([*(found.in_words for found in missing), "Submitting runs that first. Only then can the plan be shown."]))


def _preview(plan: SubmitPlan, *, as_json: bool) -> None:
    from orchestrate.submission.submit import planned_batches

    run_dir, planned = planned_batches(plan)
    if as_json:
        import json

        scripts = {batch.token: script for batch, script in planned}
        summary = [{"benchmark": b.name, "rollouts": b.expected, "shards": b.shards} for b in plan.benchmarks]
        print(json.dumps({"run": plan.name, "run_dir": str(run_dir), "benchmarks": summary, "scripts": scripts}, indent=2))
        return
    print(f"run        {plan.name}\ndirectory  {run_dir}\n{_summary(plan, [batch for batch, _ in planned])}")
    for batch, script in planned:
        print(f"\n# ---- {_batch_text(batch)}\n{script}", end="")


def _summary(plan: SubmitPlan, planned: list[JobBatch]) -> str:
    from orchestrate.cli.tables import table
    from orchestrate.config.values import in_words, walltime_seconds

    jobs = Counter(
        unit.benchmark.name
        for batch in planned
        if not batch.is_finisher
        for job in batch.jobs
        for unit in {unit.benchmark.name: unit for unit in job}.values()
    )
    rows = [[b.name, str(b.expected), str(b.shards), str(jobs[b.name]), ", ".join(b.export) or "-"] for b in plan.benchmarks]
    lines = [table(["benchmark", "rollouts", "shards", "jobs", "export"], rows)]
    compute = plan.config.the_compute
    if compute.type == "slurm":
        lines.insert(0, f"walltime   {in_words(walltime_seconds(compute.walltime))} a job")
    pack, at_once = plan.config.job.pack, plan.config.job.pack_at_once
    if pack > 1:
        count = sum(len(batch.jobs) for batch in planned if not batch.is_finisher)
        how = "one after the other" if at_once == 1 else f"{at_once} at a time"
        each = f"each fills up to {counted(pack, 'shard')}, {how}, with its services started once"
        lines.append(f"packed     {counted(count, 'job')} in all, {each}")
    return "\n".join(lines)


def _batch_text(batch: JobBatch) -> str:
    name = batch.benchmarks[0].name
    if batch.is_finisher:
        return f"{name}: finisher, when all jobs above have ended"
    if batch.is_packed:
        each = ["; ".join(f"{unit.benchmark.name} shard {unit.index}" for unit in job) for job in batch.jobs[:_JOBS_SHOWN]]
        more = f" and {len(batch.jobs) - _JOBS_SHOWN} more" if len(batch.jobs) > _JOBS_SHOWN else ""
        return f"{counted(len(batch.jobs), 'packed job')}: {' | '.join(each)}{more}"
    indexes = list(batch.of(name))
    first, last = indexes[0], indexes[-1]
    return f"{name}: " + (f"shard {first}" if first == last else f"{counted(len(indexes), 'shard')}, {first} to {last}")


def _report(result: Submittal, args: argparse.Namespace) -> int:
    from orchestrate.runs.index import remember
    from orchestrate.submission.submit import check_complete
    from orchestrate.submission.submit_work import now

    remember(result.run, at=now())
    if args.json and not args.wait:
        print(result.run.record.read_text(), end="")
    elif not args.json:
        print(_as_text(result))
    check_complete(result)
    if not args.wait:
        return 0
    from orchestrate.cli.wait import wait

    return wait(result.run, as_json=args.json)


def _as_text(result: Submittal) -> str:
    from orchestrate.runs.submissions import ShardNeed

    lines = [f"run {result.plan.name}  {result.run.root}"]
    is_on = False
    for benchmark in result.plan.benchmarks:
        needs = Counter(result.needs[benchmark.name].values())
        jobs = result.jobs.get(benchmark.name, [])
        parts = [f"{needs[ShardNeed.FINAL]} final"] if needs[ShardNeed.FINAL] else []
        parts += [f"{needs[ShardNeed.LIVE]} with a job already"] if needs[ShardNeed.LIVE] else []
        parts += [f"{len(jobs)} submitted ({_job_text(jobs)})"] if jobs else []
        parts += [f"finisher {result.finishers[benchmark.name]}"] if benchmark.name in result.finishers else []
        lines.append(
            f"  {benchmark.name}: {counted(benchmark.expected, 'rollout')} in {counted(benchmark.shards, 'shard')}: "
            f"{', '.join(parts) or 'nothing submitted'}"
        )
        is_on |= bool(parts)
    lines += [f"Follow it with: gym eval status {result.plan.name}"] if is_on else []
    return "\n".join(lines)


def _job_text(jobs: list[str]) -> str:
    # 123_4 is task 4 of array 123; node:41:9 is process 41, by its start time.
    numbers = [job_id.split(":")[1] if ":" in job_id else job_id.partition("_")[0] for job_id in jobs]
    shown = list(dict.fromkeys(numbers))
    word = "process" if ":" in jobs[0] else "job"
    return f"{word} {', '.join(shown[:4])}{', ...' if len(shown) > 4 else ''}"
