"""What a Slurm cluster does with jobs, read from its own configuration: two questions, each bounded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Final

from collector.text.counted import agreeing, counted
from orchestrate.config.compute import SlurmCompute
from orchestrate.config.pools import partitions_of
from orchestrate.config.values import in_words, walltime_seconds
from orchestrate.doctor.finding import Finding, fail, ok, warn
from orchestrate.scheduler import ask_program

_PROGRAMS: Final = ("sbatch", "squeue", "scancel", "scontrol", "srun")
#: Seconds that a collector takes from SIGTERM to its end: requests in flight get three.
_NEEDED_KILL_WAIT_S: Final = 5


def check_cluster(compute: SlurmCompute | None, *, shards: int) -> list[Finding]:
    """The findings on the cluster of this machine; ``compute`` is the configuration's entry, when there is one."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return [
            fail("slurm", f"{', '.join(missing)} not found", "Run this where jobs can be submitted, or set compute.hostname.")
        ]
    answer = ask_program(["scontrol", "show", "config"])
    if answer.trouble is not None:
        return [
            fail("slurm", f"the controller does not answer ({answer.trouble})", "Try again later, or ask your administrators.")
        ]
    config = parse_config(answer.text)
    found = [ok("slurm", f"{config.get('SLURM_VERSION', 'an unknown version')}, cluster {config.get('ClusterName', '?')}")]
    found += [_accounting(config), *_requeue(config), _dependencies(config), _arrays(config, shards)]
    if compute is None:
        return found
    return [*found, *(finding for name in partitions_of(compute) for finding in _partition(name, compute, config))]


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config`` as keys and values. Pure."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def parse_record(text: str) -> dict[str, str]:
    """One line of ``scontrol -o show``: words of ``Key=Value``. Pure."""
    pairs = (word.partition("=") for word in text.split() if "=" in word)
    return {key: value for key, _, value in pairs}


def _accounting(config: Mapping[str, str]) -> Finding:
    kind = config.get("AccountingStorageType", "")
    age = config.get("MinJobAge", "300 sec")
    if not kind.endswith("slurmdbd"):
        advice = "Nothing to do: status goes by the run's own files; job hours and queueing times cannot be told."
        return warn("accounting", f"off; an ended job is forgotten after {age}", advice)
    answer = ask_program(["sacct", "--noheader", "--allocations", "--starttime=now", "--format=JobID"])
    if answer.trouble is not None:
        return warn("accounting", f"on, and sacct does not answer ({answer.trouble})", "Ask your administrators.")
    return ok("accounting", "sacct answers")


def _requeue(config: Mapping[str, str]) -> Iterator[Finding]:
    # Jobs are submitted with --requeue, which wins over the site's default.
    is_on = config.get("JobRequeue") == "1"
    yield ok("requeue", "on" if is_on else "off by default here; jobs of a run ask for it themselves")
    yield _preemption(config.get("PreemptType", ""), config.get("PreemptMode", ""))
    kill_wait_s = int((config.get("KillWait", "30").split() or ["30"])[0])
    text = f"{kill_wait_s} s between SIGTERM and SIGKILL (KillWait)"
    advice = "Requests in flight at a preemption or cancellation are asked again; nothing recorded is lost."
    yield ok("grace", text) if kill_wait_s >= _NEEDED_KILL_WAIT_S else warn("grace", text, advice)


def _preemption(kind: str, mode: str) -> Finding:
    if kind.endswith("none") or mode in {"", "OFF"}:
        return ok("preemption", "off")
    if "REQUEUE" in mode:
        return ok("preemption", f"{mode.lower()}: a preempted job goes back to the queue and continues")
    if "CANCEL" in mode:
        return warn("preemption", "cancel: a preempted job ends for good", "Submit again after a preemption: it goes on.")
    return warn("preemption", mode.lower(), "Requests of a suspended job run into their time limits; use another partition.")


def _dependencies(config: Mapping[str, str]) -> Finding:
    is_on = "kill_invalid_depend" in f"{config.get('DependencyParameters', '')},{config.get('SchedulerParameters', '')}"
    if is_on:
        return ok("dependencies", "a job whose dependency can never be met is removed")
    advice = "Should a finisher stay PENDING (DependencyNeverSatisfied): gym eval cancel, then submit again."
    return warn("dependencies", "kill_invalid_depend is off: such a job would wait for ever", advice)


def _arrays(config: Mapping[str, str], shards: int) -> Finding:
    size, jobs = int(config.get("MaxArraySize") or 1001), int(config.get("MaxJobCount") or 10000)
    text = f"up to {counted(size, 'task')} in an array, {counted(jobs, 'job')} in the queue"
    if size < 1:
        return fail("limits", "arrays are off (MaxArraySize 0)", "Use one shard a benchmark.")
    if shards > jobs:
        return fail("limits", f"{text}; {counted(shards, 'shard')} {agreeing(shards, 'are')} wanted", "Use fewer shards.")
    return ok(
        "limits", f"{text}; {counted(shards, 'shard')} make {counted(-(-shards // size), 'array')}" if shards > size else text
    )


def _partition(name: str, compute: SlurmCompute, config: Mapping[str, str]) -> Iterator[Finding]:
    answer = ask_program(["scontrol", "--oneliner", "show", "partition", name])
    if answer.trouble is not None:
        advice = "See sinfo for the partitions there are; the key is compute.*.partition, or that of a node pool."
        yield fail("partition", f"{name}: {answer.trouble}", advice)
        return
    facts = parse_record(answer.text)
    if facts.get("State", "UP") != "UP":
        yield warn("partition", f"{name} is {facts['State']}", "Jobs wait until it is up.")
    grace = facts.get("GraceTime", "0")
    mode = facts.get("PreemptMode", config.get("PreemptMode", "OFF"))
    yield ok("partition", f"{name}: preemption {mode.lower()}, {grace} s of notice")
    yield from _walltime(name, compute, facts.get("MaxTime", "UNLIMITED"))


def _walltime(partition: str, compute: SlurmCompute, limit: str) -> Iterator[Finding]:
    wanted_s = walltime_seconds(compute.walltime)
    limit_s = limit_seconds(limit)
    if limit_s is not None and wanted_s > limit_s:
        advice = "Lower compute.*.walltime: unfinished work goes back to the queue by itself."
        yield fail("walltime", f"{in_words(wanted_s)}, and {partition} allows {in_words(limit_s)}", advice)


def limit_seconds(text: str) -> int | None:
    """The seconds of a limit as scontrol prints it, ``D-HH:MM:SS``; None for UNLIMITED and what is no time. Pure."""
    try:
        return walltime_seconds(text)
    except ValueError:
        return None
