"""Runs from Python: submit one, or open one again after a restart, and ask it. All state is in the run directory.

    run = submit("eval.yaml", ["driver.benchmarks.math.shards=8"])
    run.wait()
    print(run.coverage()["math"].mean)

A broken shard never raises for all of them: it is in ``status()`` with its reason, and the others are counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import NotFoundError, RequestError
from collector.state.coverage import Coverage
from orchestrate.config.compose import compose_data, compose_file
from orchestrate.config.load import load_config
from orchestrate.operate.waste import WasteReport, waste_of
from orchestrate.remote.forward import node_of
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.index import find_run, remember
from orchestrate.status.gather import RunReport, report
from orchestrate.status.over import Ending
from orchestrate.submission.checks import check_loaded
from orchestrate.submission.datasets import prepare_datasets
from orchestrate.submission.export_settings import settled_exports
from orchestrate.submission.submit import check_complete, gather, make_plan
from orchestrate.submission.submit import submit as submit_plan

#: Seconds without a live job or finisher after which nothing more is expected.
_QUIET_S: Final = 6.0
_PAUSE_S: Final = 2.0


def submit(
    config: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), *, new: bool = False, name: str = "eval"
) -> Run:
    """Submit the YAML file, or the same as a mapping, and return its run; repeated, it submits only what is missing.

    ``name`` stands for the file's name in that of a run from a mapping. Raises ConfigError and DatasetError before anything
    exists, UnavailableError when some shards got no job (the same call again completes it), RefusedError for another
    experiment at the same place.
    """
    if isinstance(config, Mapping):
        file = Path.cwd() / f"{name}.yaml"
        data = compose_data(dict(config), overrides, folder=Path.cwd(), where=file)
    else:
        file = Path(config)
        data = compose_file(file, overrides)
    loaded = load_config(data, where=file, environ=os.environ)
    if node_of(data) is not None:
        raise RequestError("runs on another machine are started by gym eval submit.", "Call this there.", "compute.*.hostname")
    loaded = settled_exports(loaded, os.environ).loaded
    check_loaded(loaded, where=file)
    prepare_datasets(loaded)
    sources = gather(loaded)
    result = submit_plan(make_plan(loaded, sources, file, new=new), loaded, sources)
    remember(result.run, at=datetime.now(UTC).isoformat(timespec="seconds"))
    check_complete(result)
    return Run(result.run)


def open_run(path: str | Path) -> Run:
    """The run at ``path``; a name, or the beginning of one, as commands take it. Raises NotFoundError when there is none."""
    run = find_run(str(path))
    read_plan(run)
    return Run(run)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file of the run, as written; ``data`` is empty where ``trouble`` says why the line cannot be read."""

    benchmark: str
    data: Mapping[str, Any]
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A submitted run. Two handles of one run agree: neither holds anything but its place."""

    directory: RunDir

    @property
    def name(self) -> str:
        """The run's name."""
        return self.directory.root.name

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self.directory.root

    def status(self) -> RunReport:
        """The run as it stands now: one question to the scheduler, and the run's own files."""
        return report(self.directory)

    def wait(self, timeout_s: float | None = None) -> RunReport:
        """The last report, when nothing more will happen; it may be incomplete. Raises TimeoutError after ``timeout_s``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ending = Ending(_QUIET_S)
        while True:
            found = self.status()
            if ending.is_seen(found):
                return found
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.path}: not over within {timeout_s:g} s; its jobs go on")
            time.sleep(_PAUSE_S)

    def coverage(self) -> dict[str, Coverage]:
        """The counts of each benchmark over its readable shards; one of which no shard can be read is left out."""
        return {item.name: item.coverage for item in self.status().benchmarks if item.coverage is not None}

    def rollouts(self, benchmark: str | None = None) -> Iterator[Row]:
        """The completed rows: of a merged benchmark the selected ones in (task, repeat) order, else those of its shards.

        Reads one line at a time; one that cannot be read is a row with ``trouble``. Raises NotFoundError for a benchmark that
        the run does not have.
        """
        for name, merged, shards in self._places(benchmark):
            if merged.exists():
                yield from _rows(name, merged)
            else:
                for shard in shards:
                    yield from _rows(name, shard.rollouts)

    def failures(self, benchmark: str | None = None) -> Iterator[Row]:
        """Every recorded failure of every attempt, also of rollouts that completed later."""
        for name, _merged, shards in self._places(benchmark):
            for shard in shards:
                yield from _rows(name, shard.failures)

    def report(self) -> WasteReport:
        """What the run's jobs spent on it, and where that went."""
        return waste_of(self.directory)

    def _places(self, benchmark: str | None) -> Iterator[tuple[str, Path, list[RunArtifacts]]]:
        plan = read_plan(self.directory)
        if benchmark is not None and benchmark not in plan.names:
            raise NotFoundError(f"there is no benchmark {benchmark!r}.", f"There are: {', '.join(plan.names)}.", self.path)
        for item in plan.benchmarks:
            if benchmark in (None, item.name):
                yield item.name, self.directory.merged(item).rollouts, self.directory.shards(item)


def _rows(benchmark: str, path: Path) -> Iterator[Row]:
    """The whole lines of a file; a last one that is being written, or was cut off, is none yet."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield _row(benchmark, line, path, number)


def _row(benchmark: str, line: bytes, path: Path, number: int) -> Row:
    try:
        data = jsonl.loads(line)
    except ValueError as error:
        return Row(benchmark, {}, f"{path}:{number}: not JSON ({error})")
    return Row(benchmark, data) if isinstance(data, dict) else Row(benchmark, {}, f"{path}:{number}: not an object")
