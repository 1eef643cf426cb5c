"""The bridge between libcurl and an event loop: libcurl says what it waits for, the loop says when it has happened.

libcurl's sockets come and go with every request. They are watched by an epoll set of their own, which is one descriptor for the
loop: a fifth of a request's processor time went into telling the loop of each.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Any, Final

import pycurl

_WATCHED_FOR: Final = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
#: Also what libcurl finds out by reading.
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


class Engine:
    """Drives a CurlMulti by the file descriptors and the timer of ``loop``.

    ``finish`` is called once per transfer that ended, with its handle, libcurl's error code (0: none) and message.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, finish: Callable[[Any, int, str], None]) -> None:
        self._loop = loop
        self._finish = finish
        self._watched: set[int] = set()
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: When libcurl wants to be called, on the loop's clock; None: not because of the time.
        self._due: float | None = None
        self._epoll = select.epoll()
        loop.add_reader(self._epoll.fileno(), self._on_sockets)
        self.multi = pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def close(self) -> None:
        """Forget every descriptor and close every connection. No transfer may be under way."""
        self.multi.close()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()

    def _watch(self, what: int, descriptor: int, multi: object, data: object) -> None:
        del multi, data
        if what == pycurl.POLL_REMOVE:
            # libcurl says so before it closes the socket; it may say so of one that it never asked to be watched.
            if descriptor in self._watched:
                self._watched.discard(descriptor)
                self._epoll.unregister(descriptor)
        elif descriptor in self._watched:
            self._epoll.modify(descriptor, _WATCHED_FOR[what])
        else:
            self._epoll.register(descriptor, _WATCHED_FOR[what])
            self._watched.add(descriptor)

    def _set_timer(self, timeout_ms: int) -> None:
        """Called with each request: a timer that is set too early stays, and is set anew when it rings."""
        self._due = None
        if timeout_ms == 0:
            # libcurl may not be called from its own callback.
            self._soon = self._soon or self._loop.call_soon(self._on_soon)
        elif timeout_ms > 0:
            self._due = self._loop.time() + timeout_ms / 1000
            if self._timer is None or self._timer.when() > self._due:
                self._arm(self._due)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_soon(self) -> None:
        self._soon = None
        self._look_at_the_time()

    def _on_timer(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._loop.time() < self._due:
            self._arm(self._due)
        else:
            self._look_at_the_time()

    def _look_at_the_time(self) -> None:
        # Asked too early or not, libcurl says at once when it wants to be asked again.
        self._due = None
        self.multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_sockets(self) -> None:
        for descriptor, seen in self._epoll.poll(0):
            happened = (pycurl.CSELECT_IN if seen & _READABLE else 0) | (pycurl.CSELECT_OUT if seen & select.EPOLLOUT else 0)
            # One that an earlier one of these closed is passed over by libcurl.
            self.multi.socket_action(descriptor, happened)
        self._collect()

    def _collect(self) -> None:
        left = 1
        while left:
            left, done, failed = self.multi.info_read()
            for curl in done:
                self._finish(curl, 0, "")
            for curl, code, message in failed:
                self._finish(curl, code, message)
