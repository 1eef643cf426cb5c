"""When nothing more will happen to a run, and whether it ended with a whole result of all that its shards recorded."""

from __future__ import annotations

import time

from collector.errors import IncompleteError
from orchestrate.outcome import check_outcome
from orchestrate.status.report import RunReport


class Ending:
    """Tells, look by look, whether a run is over: settled, or ``quiet_s`` seconds without a live job or finisher.

    Not at the first look without one: a requeued job may be unlisted for a moment.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._quiet_since: float | None = None

    def is_seen(self, found: RunReport) -> bool:
        """Whether ``found``, the newest look, is the last that is needed."""
        if found.has_live_jobs or found.has_live_finisher:
            self._quiet_since = None
            return False
        if found.is_settled:
            return True
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since > self._quiet_s

    @property
    def is_near(self) -> bool:
        """Whether the newest look found nobody at work."""
        return self._quiet_since is not None


def check_over(found: RunReport) -> None:
    """Raise IncompleteError or NothingMeasuredError unless every benchmark is complete and merged as its shards are now."""
    for benchmark in found.benchmarks:
        if benchmark.coverage is None or any(shard.trouble for shard in benchmark.shards):
            raise IncompleteError("some shards cannot be read.", f"See gym eval status {found.name}.", benchmark.name)
        check_outcome(benchmark.coverage, benchmark.name)
        if benchmark.merged is None or benchmark.merged_is_older:
            since = " since its shards went on" if benchmark.merged is not None else ""
            cure = f"See gym eval logs {found.name}."
            raise IncompleteError(f"was not merged{since}.", cure, benchmark.name)
