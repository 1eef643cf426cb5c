"""The health check of one run: its rows found, checked, and two reports published beside them.

The reports carry the run's stem, so that two runs in one directory keep their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError, NotFoundError, kind_of
from merge.health.checks import Check, Verdict, parse_ignored
from merge.health.pool import digest_slices
from merge.health.slices import Slice, selections_of, stretches_of
from merge.health.summary import encode_summary, encode_verdicts, summarize
from merge.health.table import Table
from merge.health.tally import Tally
from merge.health.tasks import arrange, mark_duplicates, number_tasks, view_tasks
from merge.publication.lock import waiting_lock
from merge.publication.replaceable import check_reports

NO_CHECKS: frozenset[Check] = frozenset()


@dataclass(frozen=True, slots=True)
class HealthChoice:
    """That an automatic check is wanted, and without which checks; their names are looked at when it begins."""

    ignored: tuple[str, ...] = ()
    #: Processes; None: as many as ``check_health`` takes.
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What a check found, and where its reports stand."""

    summary: dict[str, Any]
    health: Path
    verdicts: Path

    @property
    def line(self) -> str:
        """The outcome in one line."""
        counts = self.summary["run"]["verdicts"]
        return f"{self.verdicts_line}{self._why_unobserved() if counts[Verdict.UNOBSERVED] else ''}"

    @property
    def verdicts_line(self) -> str:
        """Its first part: the verdicts, and the findings of each check."""
        counts = self.summary["run"]["verdicts"]
        issues = {check: count for check, count in self.summary["run"]["issues"].items() if count}
        shown = ", ".join(f"{check} {count}" for check, count in issues.items())
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
        return f"health: {told}{f' ({shown})' if shown else ''}"

    def _why_unobserved(self) -> str:
        """The word alone tells nobody that nothing is wrong with such rows, and what makes them healthy."""
        seen = self.summary["run"]["artifacts"]["coverage"].values()
        blind = sum(bool(counts["unobserved"]) for counts in seen)
        checks = "1 check looks" if blind == 1 else f"{blind} checks look"
        way = "gym eval health-check names them, health_check_ignored_checks leaves them out"
        return f"; unobserved: nothing found, and the rows lack what {checks} at ({way})"


def check_health(artifacts: RunArtifacts, *, ignored: frozenset[Check] = NO_CHECKS, workers: int | None = None) -> HealthReport:
    """Check the rows of ``artifacts`` and publish both reports, the verdicts first.

    A run with a journal shows the row of each selected attempt, any other file all of its rows. Raises NotFoundError without
    rows, RefusedError for a report that would replace another file, CorruptArtifactError for a journal that cannot be read,
    StorageError when the disk fails. Changes no other file.
    """
    if not artifacts.rollouts.is_file():
        raise NotFoundError("there is no such rollouts file.", "Name one, or the directory of a run.", artifacts.rollouts)
    check_reports(artifacts, (artifacts.verdicts, artifacts.health))
    try:
        with artifacts.rollouts.open("rb"):
            # Rows of a file that nobody lets us read are no finding.
            pass
        return _check(artifacts, ignored, workers)
    except OSError as error:
        where = artifacts.rollouts if error.filename is None else durable.asked_for(str(error.filename))
        raise kind_of(error)(f"the health check cannot go on: {error.strerror}.", "No row was changed.", where) from error


def _check(artifacts: RunArtifacts, ignored: frozenset[Check], workers: int | None) -> HealthReport:
    table, tally = Table(), Tally()
    for part in digest_slices(_slices(artifacts), ignored, workers):
        table.extend(part.table)
        tally.add(part.tally)
    number_tasks(table)
    arrange(table)
    tally.issues[Check.DUPLICATE_IDENTITY] += mark_duplicates(table, ignored)
    summary = summarize(table, tally, view_tasks(table, ignored), ignored)
    report = HealthReport(summary, artifacts.health, artifacts.verdicts)
    # Checks of one run at once would mistake each other's temporary files for those of a crash.
    with waiting_lock(artifacts.companion("_health.lock")):
        for path in (report.verdicts, report.health):
            durable.sweep(path)
        durable.publish_lines(report.verdicts, encode_verdicts(table))
        durable.publish(report.health, encode_summary(summary))
    return report


def _slices(artifacts: RunArtifacts) -> Iterator[Slice]:
    if artifacts.manifest.is_file():
        # numpy comes with these, and a file without a journal is checked without it.
        from collector.settings import RetrySettings  # noqa: PLC0415
        from merge.inputs.shards import read_shard  # noqa: PLC0415

        return selections_of(read_shard(artifacts, RetrySettings()))
    return stretches_of(artifacts.rollouts)


def note_when_new(artifacts: RunArtifacts, choice: HealthChoice, *, since: Path) -> str | None:
    """Check unless the reports are younger than ``since``, and say the outcome in one line; None when nothing was to be done.

    A check that cannot be made is a line, and no error: what it looks at is measured, merged and safe already.
    """
    try:
        if _is_younger(artifacts.health, since):
            return None
        return check_health(artifacts, ignored=parse_ignored(choice.ignored), workers=choice.workers).line
    except (GymEvalError, OSError) as error:
        return f"health: not checked: {' '.join(str(error).split())}"


def _is_younger(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mtime_ns >= other.stat().st_mtime_ns
    except FileNotFoundError:
        return False
