"""``gym eval submit --wait``: live progress until the run is over, then its scores with their coverage and where they are."""

from __future__ import annotations

import os
import sys
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

from collector.text.counted import agreeing, counted
from orchestrate.terminal import fitting

if TYPE_CHECKING:
    from collector.artifacts import RunArtifacts
    from orchestrate.runs.directory import RunDir
    from orchestrate.status.report import BenchmarkReport, RunReport

#: Seconds between two looks: few at first, since small runs end soon, and never so many questions that Slurm minds.
_PAUSES_S: Final = (0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0)
#: Seconds without a live job or finisher after which nothing more is expected.
_QUIET_S: Final = 4.0


def wait(run: RunDir, *, as_json: bool) -> int:
    """Return 0 when everything completed. Raises IncompleteError or NothingMeasuredError otherwise. Ctrl-C leaves the jobs."""
    from orchestrate.status.over import check_over

    try:
        found = _until_over(run)
    except KeyboardInterrupt:
        print(f"\nThe jobs go on. Look at them with: gym eval status {run.root}", file=sys.stderr)
        return 130
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        print(final_text(found))
        _print_reasons(run, found)
    check_over(found)
    _check_exports(run)
    return 0


def _until_over(run: RunDir) -> RunReport:
    from orchestrate.status.gather import report
    from orchestrate.status.over import Ending

    line = _ProgressLine()
    pauses_s = chain(_PAUSES_S, repeat(_PAUSES_S[-1]))
    ending = Ending(_QUIET_S)
    while True:
        found = report(run)
        line.show(found)
        if ending.is_seen(found):
            line.end()
            return found
        time.sleep(next(pauses_s))


class _ProgressLine:
    """One line on stderr: rewritten in place on a terminal, a new one at each change elsewhere."""

    def __init__(self) -> None:
        self._shown = ""
        self._in_place = sys.stderr.isatty()

    def show(self, found: RunReport) -> None:
        text = "  ".join(_progress(benchmark) for benchmark in found.benchmarks)
        if found.scheduler_trouble:
            text += "  (the scheduler could not be asked)"
        if text != self._shown:
            end = "" if self._in_place else "\n"
            clear = "\r\x1b[K" if self._in_place else ""
            # A line that goes on in the next one could not be cleared.
            print(f"{clear}{fitting(text, sys.stderr) if self._in_place else text}", end=end, file=sys.stderr, flush=True)
            self._shown = text

    def end(self) -> None:
        if self._in_place:
            print(file=sys.stderr)


def _progress(benchmark: BenchmarkReport) -> str:
    done = sum(shard.completed for shard in benchmark.shards)
    failed = sum(shard.failed for shard in benchmark.shards)
    trouble = f", {failed} failing" if failed else ""
    waits = [
        f", {counted(len(waits), 'job')} {agreeing(len(waits), 'wait')} for service {service} at {waits[0].address}"
        for service, waits in benchmark.waits_by_service.items()
    ]
    return f"{benchmark.name} {done}/{benchmark.expected}{trouble}{''.join(waits)}"


def final_text(found: RunReport) -> str:
    """The table that a run ends with, and the files behind it."""
    from pathlib import Path

    from collector.artifacts import RunArtifacts
    from orchestrate.cli.result_text import warnings_of
    from orchestrate.cli.tables import kinds_of, score_of, table, terminal_width, wrapped

    width = terminal_width()
    rows = [
        [b.name, score_of(b.coverage), kinds_of(b.coverage.failures_by_kind) if b.coverage else "-"] for b in found.benchmarks
    ]
    lines = [table(["benchmark", "score (measured/expected)", "failures"], rows)]
    for benchmark in found.benchmarks:
        said = [*(warnings_of(benchmark.coverage) if benchmark.coverage else []), *benchmark.submission_troubles]
        lines += [wrapped(f"{benchmark.name}: {line}", width) for line in said]
    for benchmark in found.benchmarks:
        if benchmark.merged is None:
            lines.append(f"{benchmark.name}: not merged; see gym eval status {found.name}")
            continue
        merged = RunArtifacts(Path(benchmark.merged))
        files = [merged.rollouts, merged.coverage, merged.aggregate]
        lines += [f"{benchmark.name}:", *(f"  {path}" for path in files if path.exists()), *_destinations(merged)]
    return "\n".join(lines)


def _print_reasons(run: RunDir, found: RunReport) -> None:
    """What the jobs of incomplete benchmarks said last, and where all of it is."""
    from orchestrate.runs.directory import read_plan
    from orchestrate.status.last_words import reasons

    plan = read_plan(run)
    incomplete = [b for b in found.benchmarks if b.coverage is None or not b.coverage.complete]
    for benchmark in incomplete:
        unfinished = {shard.index for shard in benchmark.shards if shard.trouble or shard.completed < shard.expected}
        for words in reasons(run, plan.benchmark(benchmark.name), unfinished):
            print(f"{benchmark.name}: {words}", file=sys.stderr)
    if incomplete:
        print(f"All that the jobs wrote: gym eval logs {found.name}", file=sys.stderr)


def _destinations(merged: RunArtifacts) -> list[str]:
    """Where the exports of this projection went; those of earlier ones are no results of it."""
    from exporters.direct import published_digest
    from exporters.ledger import arrived_at, read_events

    digest = published_digest(merged)
    return [] if digest is None else [f"  {place}" for place in arrived_at(read_events(merged.exports), digest)]


def _check_exports(run: RunDir) -> None:
    from collector.errors import UnavailableError
    from orchestrate.jobs.tail import is_finished
    from orchestrate.runs.directory import read_plan
    from orchestrate.submission.export_settings import known_environ

    plan = read_plan(run)
    environ = known_environ(plan.config, os.environ)
    missing = [benchmark.name for benchmark in plan.benchmarks if not is_finished(run, benchmark, environ)]
    if missing:
        cure = f"gym eval status {run.root.name} says why, and gym eval export {run.root.name} tries again."
        raise UnavailableError(f"exports of {', '.join(missing)} did not arrive.", cure)
