"""``gym eval cancel``: stop the jobs of a run; everything recorded stays, and submitting again goes on from there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import SUBMITTED_WORDS

if TYPE_CHECKING:
    from orchestrate.operate.cancel import Cancelled
    from orchestrate.operate.jobs import RunJob
    from orchestrate.runs.directory import RunDir


def main(argv: list[str]) -> int:
    """Return 0 when every chosen job has ended. Raises UnavailableError when one could not be ended."""
    args = _parser().parse_args(argv)
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("cancel", args.run, argv)) is not None:
        return code
    from orchestrate.named import run_and_benchmark
    from orchestrate.operate.cancel import cancel

    run, benchmark = run_and_benchmark(args.run, args.benchmark, acts=True)
    done = cancel(run, benchmark=benchmark, shard=args.shard, finish=args.finish, say=_say)
    print(_as_json(run, done) if args.json else _as_text(run, benchmark, done))
    _check(run, done)
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval cancel",
        description="Stop the jobs of a run; nothing recorded is lost. Example: gym eval cancel math-1f2e3d4c --shard 3",
        epilog="With --finish or without, the same gym eval submit goes on from there.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{SUBMITTED_WORDS}; default: the last one")
    parser.add_argument("--benchmark", metavar="NAME", help="only the jobs of this benchmark")
    parser.add_argument("--shard", type=int, metavar="I", help="only the job of this shard")
    parser.add_argument(
        "--finish",
        action="store_true",
        help="give requests in flight 3 seconds to finish; when the jobs have ended, merge and export what is recorded, "
        "as rollouts.partial.jsonl where rollouts are left",
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _as_text(run: RunDir, benchmark: str | None, done: Cancelled) -> str:
    # A packed job stands there once for each of its shards.
    ended = len({job.job_id for job in done.stopped} - {job.job_id for job in done.left})
    lines = [f"{counted(ended, 'job')} ended." if done.stopped else "No job was waiting or running."]
    lines += [f"still there: {job.shown}, {job.fact.state.lower()}" for job in done.left]
    lines += [f"{name}: {text}" for name, text in done.merges.items()]
    if done.open_tokens:
        lines.append(
            f"never answered: {counted(len(done.open_tokens), 'submission')}. Run the same command again in two minutes."
        )
    if not done.stopped and not done.open_tokens and _is_final(run, benchmark):
        lines.append(f"Nothing is left to do in it: gym eval status {run.root.name}")
    else:
        lines.append(f"Go on with the same gym eval submit, or look at it: gym eval status {run.root.name}")
    return "\n".join(lines)


def _is_final(run: RunDir, benchmark: str | None) -> bool:
    from orchestrate.status.gather import report

    return report(run, benchmark=benchmark).is_final


def _as_json(run: RunDir, done: Cancelled) -> str:
    shown = {
        "run_dir": str(run.root),
        "stopped": [_job(job) for job in done.stopped],
        "left": [_job(job) for job in done.left],
        "never_answered": list(done.open_tokens),
        "merges": done.merges,
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _job(job: RunJob) -> dict[str, object]:
    return {"benchmark": job.benchmark, "shard": job.index, "job_id": job.job_id, "state": job.fact.state}


def _check(run: RunDir, done: Cancelled) -> None:
    from collector.errors import UnavailableError

    if done.left:
        shown = ", ".join(job.shown for job in done.left[:5])
        raise UnavailableError(
            f"{counted(len({job.job_id for job in done.left}), 'job')} did not end: {shown}.",
            "Run the same command again.",
            run.root,
        )
