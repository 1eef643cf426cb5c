"""How everything that a job does is asked to stop: the waiting of the job itself, and each of its collectors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from collector.stop import StopReason, StopRequest


class JobStops:
    """A request of its own for each collector: one that gives up its endpoint stops no other."""

    def __init__(self, *, margin_s: float) -> None:
        self._margin_s = margin_s
        #: What the job itself waits by.
        self.master = StopRequest(margin_s=margin_s)
        self._collectors: set[StopRequest] = set()
        #: What the first signal asked for; unlike a request to stop, it outlives the services.
        self._signalled: StopReason | None = None

    @property
    def is_asked(self) -> bool:
        """Whether nothing new may begin."""
        return self.master.is_asked

    @property
    def reason(self) -> StopReason | None:
        """Why, once asked."""
        return self.master.reason

    def ask(self, reason: StopReason, *, at_once: bool = False) -> None:
        """Ask all of them; those that begin later find it asked."""
        for request in (self.master, *self._collectors):
            request.ask(reason, at_once=at_once)

    def signal(self, reason: StopReason, *, margin_s: float) -> None:
        """The same for a signal, which says how long requests in flight may take."""
        self._signalled = self._signalled or reason
        self._margin_s = margin_s
        for request in (self.master, *self._collectors):
            request.margin_s = margin_s
        self.ask(reason)

    def begin_anew(self) -> bool:
        """Forget what was asked because of a service; False when a signal asked too, which holds."""
        self.master = StopRequest(margin_s=self._margin_s)
        if self._signalled is not None:
            self.master.ask(self._signalled)
        return self._signalled is None

    @contextmanager
    def collector(self) -> Generator[StopRequest]:
        """The request of one collector while it works."""
        request = StopRequest(margin_s=self._margin_s)
        if self.master.reason is not None:
            request.ask(self.master.reason)
        self._collectors.add(request)
        try:
            yield request
        finally:
            self._collectors.discard(request)
