"""``gym eval export RUN``: the configured exports of a submitted run that did not arrive yet."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from collector.errors import IncompleteError
from exporters.base import ExportResult
from exporters.direct import published_digest
from exporters.once import export_once
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan
from orchestrate.runs.standing import is_older
from orchestrate.submission.export_settings import known_environ


def export_missing(run: RunDir, *, benchmark: str | None, as_json: bool) -> int:
    """Make them, print how each ended, and return 0 when everything stands and 1 when an export failed.

    Raises IncompleteError when a benchmark is not merged yet, or not since its shards went on: what there is of it is old.
    """
    plan = read_plan(run)
    # As jobs export.
    os.environ.update(known_environ(plan.config, os.environ))
    unmerged: list[str] = []
    older: list[str] = []
    results: list[tuple[str, str, ExportResult]] = []
    # Relative paths of settings start where the run was submitted.
    with contextlib.chdir(plan.cwd):
        for item in plan.benchmarks:
            if benchmark not in (None, item.name):
                continue
            digest = published_digest(run.merged(item))
            if digest is None:
                unmerged += [item.name] if item.export else []
            elif run.result(item) != run.merged(item) or is_older(run, item, run.merged(item)):
                older += [item.name] if item.export else []
            else:
                results += _exports_of(run, item, digest)
    is_asked = any(item.export for item in plan.benchmarks if benchmark in (None, item.name))
    print(_as_json(results) if as_json else _as_text(results, is_asked=is_asked), end="")
    if unmerged or older:
        yet = [f"not merged yet: {', '.join(unmerged)}"] if unmerged else []
        since = [f"not merged since its shards went on: {', '.join(older)}"] if older else []
        raise IncompleteError(f"{'; '.join([*yet, *since])}.", "Export again when they are.", run.root)
    return 0 if all(result.is_success for _, _, result in results) else 1


def _exports_of(run: RunDir, benchmark: BenchmarkPlan, digest: str) -> Iterator[tuple[str, str, ExportResult]]:
    for name, values in benchmark.export.items():
        yield benchmark.name, name, export_once(name, values, run.merged(benchmark), digest)


def _as_text(results: list[tuple[str, str, ExportResult]], *, is_asked: bool) -> str:
    if not results:
        return "" if is_asked else "No export is configured. One that is not: gym eval export EXPORTER RUN\n"
    return "".join(f"{benchmark}: {line}\n" for benchmark, name, result in results for line in result.lines(name))


def _as_json(results: list[tuple[str, str, ExportResult]]) -> str:
    shown: list[dict[str, Any]] = [
        {"benchmark": benchmark, "exporter": name, "state": result.state.value, "message": result.message}
        for benchmark, name, result in results
    ]
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"
