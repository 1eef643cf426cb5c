"""Locks, appends and replacements on the output path, seen by one process, by two here, and by two nodes when allowed."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from collector import durable
from collector.shard.lock_backends import LockBackend
from collector.text.counted import agreeing, counted
from orchestrate.config.compute import SlurmCompute
from orchestrate.config.pools import partitions_of
from orchestrate.doctor.finding import Finding, fail, ok, warn
from orchestrate.doctor.probe import LINES
from orchestrate.scheduler import scrubbed_environment

#: Seconds for a job of two nodes to start and look; a busy cluster is no finding.
_JOB_TIMEOUT_S: Final = 180.0
_LOCAL_TIMEOUT_S: Final = 60.0
_LEAST_FREE_BYTES: Final = 1 << 30
#: Seconds by which clocks may differ before times in journals and logs mislead.
_SKEW_S: Final = 2.0


def check_storage(path: Path) -> list[Finding]:
    """How the output path behaves for processes of this machine.

    Works in a directory of its own that it removes; a path that does not exist is looked at where it would be made.
    """
    place = existing_part(path)
    try:
        directory = _own_directory(place)
    except OSError as error:
        return [fail("storage", f"{path}: cannot be written ({error.strerror})", "Choose another job.output_path.")]
    try:
        seen, trouble = _run_two(directory)
        return [_space(path, place), *_judge("storage", seen, trouble)]
    finally:
        _remove(directory)


def check_nodes(path: Path, compute: SlurmCompute | None) -> list[Finding]:
    """How the output path behaves for two nodes, and how far their clocks are from this one. Runs a short job."""
    try:
        directory = _own_directory(existing_part(path))
    except OSError as error:
        return [fail("two nodes", f"{path}: cannot be written ({error.strerror})", "Choose another job.output_path.")]
    try:
        before = time.time()
        seen, trouble = _run_on_nodes(directory, compute)
        found = list(_judge("two nodes", seen, trouble))
        return [*found, *_clocks(seen, before, time.time())]
    finally:
        _remove(directory)


def existing_part(path: Path) -> Path:
    """``path``, or the nearest directory above it that exists: what would be made there behaves as that one does."""
    return next((place for place in (path, *path.parents) if place.exists()), path)


def _own_directory(place: Path) -> Path:
    directory = place / f".doctor-{secrets.token_hex(4)}"
    directory.mkdir()
    return directory


def _run_two(directory: Path) -> tuple[list[dict[str, Any]], str | None]:
    commands = [[sys.executable, "-m", "orchestrate.doctor.probe", str(directory), str(rank), "2"] for rank in (0, 1)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        said = [process.communicate(timeout=_LOCAL_TIMEOUT_S) for process in running]
    except subprocess.TimeoutExpired:
        for process in running:
            process.kill()
            process.communicate()
        return [], f"a system call did not return within {_LOCAL_TIMEOUT_S:.0f} s"
    return _parse(out for out, _ in said), None


def _run_on_nodes(directory: Path, compute: SlurmCompute | None) -> tuple[list[dict[str, Any]], str | None]:
    python = compute.python if compute is not None and compute.python else sys.executable
    probe = 'exec "$0" -m orchestrate.doctor.probe "$1" "$SLURM_PROCID" 2'
    command = ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--time=5", "--job-name=gym-doctor", "--quiet"]
    command += [*_flags(compute), "sh", "-c", probe, python, str(directory)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_JOB_TIMEOUT_S, env=scrubbed_environment(), check=False
        )
    except subprocess.TimeoutExpired:
        return [], f"no two nodes were free within {_JOB_TIMEOUT_S:.0f} s"
    except FileNotFoundError:
        return [], "srun is not installed here"
    seen = _parse([done.stdout])
    said = " ".join(done.stderr.split())[-300:]
    return seen, None if len(seen) == 2 else said or f"srun ended with exit code {done.returncode}"


def _flags(compute: SlurmCompute | None) -> list[str]:
    if compute is None:
        return []
    named = {"account": compute.account, "partition": next(iter(partitions_of(compute)), None), "qos": compute.qos}
    return [f"--{name}={value}" for name, value in named.items() if value is not None]


def _parse(outputs: Sequence[str] | Iterator[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for output in outputs:
        for line in output.splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
    return sorted(found, key=lambda seen: seen["rank"])


def _judge(subject: str, seen: Sequence[dict[str, Any]], trouble: str | None) -> Iterator[Finding]:
    if trouble is not None or len(seen) < 2:
        yield warn(subject, f"could not be looked at ({trouble or 'no answer'})", "Try again; nothing was found out.")
        return
    first, second = seen
    if told := first.get("trouble") or second.get("trouble"):
        yield fail(subject, str(told), "Use a path on a file system with working locks and renames.")
        return
    yield _lock(subject, first, second)
    lines, whole = first["lines"], first["whole"]
    advice = "Journals are written by one process at a time, so runs are safe; other tools may not be."
    text = f"{counted(whole, 'line', of=2 * LINES)} that two processes added at once {agreeing(whole, 'are')} whole"
    yield ok(f"{subject}: append", text) if lines == whole == 2 * LINES else warn(f"{subject}: append", text, advice)
    is_atomic = not second["torn"] and not second["missing"]
    text = "a reader sees the old file or the new one"
    bad = f"a reader saw {counted(second['torn'], 'mixture')} and {counted(second['missing'], 'time')} no file"
    yield ok(f"{subject}: replace", text) if is_atomic else fail(f"{subject}: replace", bad, "Use another file system.")


def _lock(subject: str, first: dict[str, Any], second: dict[str, Any]) -> Finding:
    backend = LockBackend(first["backend"])
    if not second["excluded"]:
        return fail(f"{subject}: lock", f"{backend}: two holders at once", "Use another file system for job.output_path.")
    if not second["free"]:
        return fail(f"{subject}: lock", f"{backend}: not free after its holder let go", "Use another file system.")
    return ok(f"{subject}: lock", f"{backend}: excludes, and is free again at once")


def _clocks(seen: Sequence[dict[str, Any]], before: float, after: float) -> Iterator[Finding]:
    for item in seen:
        # The node looked at its clock at some moment between these two; only what lies outside is a difference for certain.
        skew = max(before - item["time"], item["time"] - after, 0.0)
        text = f"{item['host']}: Python {item['python']}, clock {f'off by {skew:.1f} s or more' if skew else 'agrees'}"
        if skew > _SKEW_S:
            yield warn("clock", text, "Ages and durations mislead; results do not depend on clocks.")
        else:
            yield ok("clock", text)


def _space(path: Path, place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    told = str(path) if path == place else f"{path} (not there yet; looked at {place})"
    text = f"{told}: {free / 1e9:.1f} GB free"
    return ok("storage", text) if free >= _LEAST_FREE_BYTES else warn("storage", text, "Make room before a large run.")


def _remove(directory: Path) -> None:
    with suppress(OSError):
        durable.remove_tree(directory)
