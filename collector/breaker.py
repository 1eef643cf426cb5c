"""Stops a run whose endpoint answers every request in the same wrong way, before it burns the attempts of all tasks."""

from __future__ import annotations

from collector.outcomes import Completed, Failure, Omitted, Stage

#: So many failures of one kind in a row, with nothing completed between, before the endpoint is held to be broken.
_LEAST_IN_A_ROW = 20


class CircuitBreaker:
    """Counts failures that look alike. One completed rollout, or a failure of another kind, starts the count anew."""

    def __init__(self, parallel: int) -> None:
        # Everything in flight when an endpoint dies fails once: that alone must not trip it.
        self._limit = max(_LEAST_IN_A_ROW, 2 * parallel)
        self._signature: tuple[object, ...] | None = None
        self._count = 0
        self.verdict: str | None = None

    def see(self, outcome: Completed | Failure | Omitted) -> None:
        """Take one outcome into account; ``verdict`` says in the endpoint's own words why to stop, once it is time."""
        if not isinstance(outcome, Failure) or outcome.stage is Stage.VERIFICATION:
            self._signature, self._count = None, 0
            return
        signature = (outcome.kind, outcome.failure_class, outcome.http_status)
        self._count = self._count + 1 if signature == self._signature else 1
        self._signature = signature
        if self._count >= self._limit:
            self.verdict = f"{self._count} requests in a row failed alike: {outcome.reason}"
