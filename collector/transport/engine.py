"""The bridge between libcurl and an event loop: libcurl says what it waits for, the loop says when it has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pycurl


class Engine:
    """Drives a CurlMulti by the file descriptors and the timer of ``loop``.

    ``finish`` is called once per transfer that ended, with its handle, libcurl's error code (0: none) and message.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, finish: Callable[[Any, int, str], None]) -> None:
        self._loop = loop
        self._finish = finish
        self._watched: dict[int, int] = {}
        self._timer: asyncio.Handle | None = None
        self.multi = pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def close(self) -> None:
        """Forget every descriptor and close every connection. No transfer may be under way."""
        self.multi.close()
        for descriptor in list(self._watched):
            self._unwatch(descriptor)
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, what: int, descriptor: int, multi: object, data: object) -> None:
        del multi, data
        before = self._watched.get(descriptor, 0)
        wanted = 0 if what == pycurl.POLL_REMOVE else what
        if wanted & pycurl.POLL_IN and not before & pycurl.POLL_IN:
            self._loop.add_reader(descriptor, self._act, descriptor, pycurl.CSELECT_IN)
        elif before & pycurl.POLL_IN and not wanted & pycurl.POLL_IN:
            self._loop.remove_reader(descriptor)
        if wanted & pycurl.POLL_OUT and not before & pycurl.POLL_OUT:
            self._loop.add_writer(descriptor, self._act, descriptor, pycurl.CSELECT_OUT)
        elif before & pycurl.POLL_OUT and not wanted & pycurl.POLL_OUT:
            self._loop.remove_writer(descriptor)
        if wanted:
            self._watched[descriptor] = wanted
        else:
            self._watched.pop(descriptor, None)

    def _unwatch(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)

    def _set_timer(self, timeout_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_ms == 0:
            # libcurl may not be called from its own callback.
            self._timer = self._loop.call_soon(self._on_timer)
        elif timeout_ms > 0:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, descriptor: int, events: int) -> None:
        self.multi.socket_action(descriptor, events)
        left = 1
        while left:
            left, done, failed = self.multi.info_read()
            for curl in done:
                self._finish(curl, 0, "")
            for curl, code, message in failed:
                self._finish(curl, code, message)
