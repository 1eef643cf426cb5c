"""What RUN means wherever a command takes one: a name, NAME/BENCHMARK, a directory or a rollouts file, always in this way.

What lies at a path wins over a name; a name may be cut to a beginning that only one run has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.artifacts import RunArtifacts
from collector.errors import NotFoundError, RequestError
from merge.inputs.sources import is_companion, prepared_in
from orchestrate.run_words import RUN_WORDS, SUBMITTED_WORDS

if TYPE_CHECKING:
    from orchestrate.runs.directory import RunDir

#: Run directories, plans and the index of runs bring the whole configuration: for a file outside every run they stay away.
_PLAN: Final = "plan.json"


@dataclass(frozen=True, slots=True)
class Named:
    """What a person named. ``path`` is where it lies."""

    path: Path
    #: The submitted run that it is, or is part of.
    run: RunDir | None = None
    #: The only benchmark of that run that is meant; None is every one.
    benchmark: str | None = None
    #: The rollouts that were named, by their file or a directory that holds just them; None for runs and benchmarks.
    rollouts: RunArtifacts | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The rollouts of one benchmark as a whole. ``name`` is None for a file outside every submitted run."""

    name: str | None
    slug: str
    artifacts: RunArtifacts


def named(text: str) -> Named:
    """What ``text`` names. Raises NotFoundError with what there is instead, also when several runs begin like that."""
    path = Path(text)
    found = _at(path.absolute()) if path.exists() else None
    if found is not None and (found.run is not None or found.rollouts is not None):
        return found
    if (run := _by_name(text)) is not None:
        return run
    if found is not None:
        return found
    head, slash, tail = text.rpartition("/")
    if slash and (run := _by_name(head)) is not None and run.run is not None:
        return _benchmark_named(run.run, tail)
    names = ", ".join(list(dict.fromkeys(_run_names()))[-5:])
    known = f"The last runs are: {names}." if names else "No run was submitted from here."
    raise NotFoundError("there is no such run, directory or file.", known, text)


def submitted(text: str | None, *, acts: bool = False) -> Named:
    """The submitted run, or the part of it, that ``text`` names; None is the last one that the scheduler took.

    A newer run that it refused is told on standard error; a command that ``acts`` is not to guess which of the two is meant.
    Raises NotFoundError, and RequestError for such a guess.
    """
    if text is None:
        from orchestrate.runs.index import last_run  # noqa: PLC0415

        run, refused = last_run()
        if refused is not None:
            what = f"{refused.root.name}, which was submitted last, was refused by the scheduler and has no jobs"
            if acts:
                raise RequestError(f"{what}; the run before it is {run.root.name}.", "Name the run that you mean.")
            sys.stderr.write(f"gym eval: note: {what}; this is the run before it, {run.root.name}.\n")
        return Named(run.root, run)
    found = named(text)
    if found.run is None:
        raise NotFoundError("there is no submitted run here.", f"Give {SUBMITTED_WORDS}.", text)
    return found


def whole_run(text: str | None, *, acts: bool = False) -> RunDir:
    """The submitted run that ``text`` names, for commands that know no parts. Raises RequestError for a part of one."""
    found = submitted(text, acts=acts)
    run = _run_of(found)
    if found.path != run.root:
        raise RequestError("this command takes a whole run.", f"Name {run.root.name}.", text or "")
    return run


def run_and_benchmark(text: str | None, benchmark: str | None, *, acts: bool = False) -> tuple[RunDir, str | None]:
    """The submitted run and the benchmark that ``text`` and the flag --benchmark choose; None is every one."""
    found = submitted(text, acts=acts)
    if benchmark is not None and found.benchmark not in (None, benchmark):
        raise RequestError(f"{text} is of benchmark {found.benchmark}, and --benchmark says {benchmark}.", "Leave one out.")
    return _run_of(found), benchmark or found.benchmark


def results_of(found: Named, benchmark: str | None = None) -> list[Result]:
    """The merged rollouts of each benchmark that was named, whether or not they exist yet; of a file, itself.

    Raises NotFoundError for a directory that is neither a run's nor holds rollouts, and for a benchmark that is not there.
    """
    if found.rollouts is not None:
        return [Result(found.benchmark, found.rollouts.rollouts.stem, found.rollouts)]
    if found.run is None:
        raise NotFoundError("there are no rollouts here.", f"Give {RUN_WORDS}.", found.path)
    from orchestrate.runs.directory import read_plan  # noqa: PLC0415

    plan = read_plan(found.run)
    wanted = benchmark or found.benchmark
    if wanted is not None and wanted not in plan.names:
        raise NotFoundError(f"there is no benchmark {wanted!r}.", f"There are: {', '.join(plan.names)}.", found.run.root)
    return [Result(b.name, b.slug, found.run.result(b)) for b in plan.benchmarks if wanted in (None, b.name)]


def one_result(found: Named, benchmark: str | None = None) -> Result:
    """The same where only one can be meant. Raises RequestError that names the choices."""
    results = results_of(found, benchmark)
    if len(results) > 1:
        names = ", ".join(str(result.name) for result in results)
        raise RequestError(
            f"the run has several benchmarks: {names}.", "Add --benchmark NAME, or write RUN/NAME.", found.path.name
        )
    return results[0]


def _run_of(found: Named) -> RunDir:
    if found.run is None:
        raise AssertionError("submitted() gives runs only")
    return found.run


def _by_name(text: str) -> Named | None:
    if not text or not any(name.startswith(text) for name in _run_names()):
        return None
    from orchestrate.runs.index import find_run  # noqa: PLC0415

    run = find_run(text)
    return Named(run.root, run)


def _run_names() -> list[str]:
    """The names of the runs that were submitted from here, the last one last."""
    from orchestrate.runs.index import entries  # noqa: PLC0415

    return [entry.name for entry in entries()]


def _at(path: Path) -> Named:
    """What lies at ``path``, which exists."""
    if (run := _run_at(path)) is not None:
        return Named(path, run)
    # A file or a shard's directory lies two to five levels below its run.
    above = filter(None, map(_run_at, path.parents))
    # Other programs write a plan.json, too, and not into what somebody named here.
    run = next((run for run in above if run.resolved_config.exists()), None)
    benchmark = _benchmark_at(run, path) if run is not None else None
    if benchmark is None:
        run = None
    elif run is not None and path == run.root / path.name:
        return Named(path, run, benchmark)
    return Named(path, run, benchmark, _rollouts_at(path))


def _run_at(root: Path) -> RunDir | None:
    """``root`` as a run directory when it has a plan."""
    if not (root / _PLAN).exists():
        return None
    from orchestrate.runs.directory import RunDir  # noqa: PLC0415

    return RunDir(root)


def _benchmark_at(run: RunDir, path: Path) -> str | None:
    from orchestrate.runs.directory import read_plan  # noqa: PLC0415

    slug = path.relative_to(run.root).parts[0]
    return next((benchmark.name for benchmark in read_plan(run).benchmarks if benchmark.slug == slug), None)


def _rollouts_at(path: Path) -> RunArtifacts | None:
    if path.is_file():
        return RunArtifacts(path) if path.suffix == ".jsonl" and not is_companion(path) else None
    own = path / "rollouts.jsonl"
    if own.is_file():
        return RunArtifacts(own)
    prepared = prepared_in(path)
    return RunArtifacts(prepared[0]) if len(prepared) == 1 else None


def _benchmark_named(run: RunDir, text: str) -> Named:
    from orchestrate.runs.directory import read_plan  # noqa: PLC0415

    plan = read_plan(run)
    found = next((benchmark for benchmark in plan.benchmarks if text in {benchmark.name, benchmark.slug}), None)
    if found is None:
        raise NotFoundError(f"there is no benchmark {text!r}.", f"There are: {', '.join(plan.names)}.", run.root)
    return Named(run.benchmark(found), run, found.name)
