"""An asyncio HTTP client on libcurl: named error codes that tell what left this machine, and less CPU time than aiohttp.

A request is never silently sent twice. libcurl repeats a request by itself when a connection it reuses is closed before
any byte of the reply. That cannot be switched off, but it has to rewind the body first: the body is therefore given by a
callback, and the rewind is refused, which turns the repetition into an error that is reported as a dropped peer. HTTP/2,
where refused streams are repeated too, and redirects are not used.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import pycurl

from collector.settings import Timeouts
from collector.transport.engine import Engine
from collector.transport.exchange import Exchange, diagnose
from collector.transport.transfer import Transfer, facts_of, reply_of
from collector.transport.trust import ca_file

#: Longest reply body. A million tokens with log probabilities stay below; a server that streams without end does not.
MAX_BODY_BYTES: Final = 256 << 20
#: Connections idle longer are not reused. Common servers close idle ones after 5 s; a request racing with that close is lost.
_MAX_IDLE_S: Final = 4
#: After a request was lost on a connection the server had closed unannounced, each request gets a new one for this long.
_DISTRUST_S: Final = 60.0
_LOOPBACK: Final = "localhost,127.0.0.0/8,::1"


class HttpClient:
    """Sends requests of one event loop. Use it as an async context manager; any number of requests may run at once.

    Every wait has an end (``timeouts``); the clock starts when the request is handed to libcurl, which opens a connection
    at once: nothing queues behind a pool. What the peer or the network does comes back as a value, never as an exception.
    Cancelling the awaiting task ends its request and closes its connection.
    Proxies of the environment are honoured except for this machine's own addresses. Certificates are always verified.
    """

    def __init__(self, timeouts: Timeouts, *, max_idle: int = 64, environ: Mapping[str, str] = os.environ) -> None:
        self._timeouts = timeouts
        self._max_idle = max_idle
        self._no_proxy = ",".join(filter(None, [environ.get("no_proxy") or environ.get("NO_PROXY"), _LOOPBACK]))
        self._ca_file = ca_file(environ.get("SSL_CERT_FILE"))
        self._idle: list[Transfer] = []
        self._transfers: dict[Any, Transfer] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._reuse_from = 0.0

    async def __aenter__(self) -> Self:
        # Kept: asking for the running loop is a call of the system each time.
        self._loop = asyncio.get_running_loop()
        self._engine = Engine(self._loop, self._finish)
        # libcurl keeps this many connections open after use; fewer than the concurrency would mean endless reconnecting.
        self._engine.multi.setopt(pycurl.M_MAXCONNECTS, max(self._max_idle, 1))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for transfer in list(self._transfers.values()):
            self._drop(transfer)
            if transfer.future is not None:
                transfer.future.cancel()
        for transfer in self._idle:
            transfer.curl.close()
        self._idle.clear()
        self._engine.close()

    async def post_json(self, url: str, body: bytes, headers: Sequence[str] = ()) -> Exchange:
        """POST ``body`` as JSON. ``headers`` are whole lines, ``Name: value``, and never appear in a failure's text."""
        return await self._send(url, body, ["Content-Type: application/json", "Expect:", *headers])

    async def get(self, url: str, headers: Sequence[str] = ()) -> Exchange:
        """GET ``url``."""
        return await self._send(url, None, list(headers))

    async def _send(self, url: str, body: bytes | None, lines: list[str]) -> Exchange:
        future: asyncio.Future[Exchange] = self._loop.create_future()
        transfer = self._idle.pop() if self._idle else Transfer(self._new_handle())
        now = time.monotonic()
        transfer.begin(future, url, body, lines, now=now, is_fresh=now < self._reuse_from)
        self._transfers[transfer.curl] = transfer
        self._engine.multi.add_handle(transfer.curl)
        if self._sweeper is None:
            self._schedule_sweep()
        try:
            return await future
        finally:
            # The handle may serve another request already.
            if transfer.future is future and transfer.curl in self._transfers:
                self._drop(transfer)

    def _new_handle(self) -> Any:
        curl = pycurl.Curl()
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.CONNECTTIMEOUT_MS, _milliseconds(self._timeouts.connect_s)),
            (pycurl.TIMEOUT_MS, _milliseconds(self._timeouts.request_s)),
            (pycurl.MAXFILESIZE_LARGE, MAX_BODY_BYTES),
            (pycurl.MAXAGE_CONN, _MAX_IDLE_S),
            (pycurl.TCP_KEEPALIVE, 1),
            (pycurl.NOPROXY, self._no_proxy),
        ):
            curl.setopt(option, value)
        if self._ca_file:
            curl.setopt(pycurl.CAINFO, self._ca_file)
        return curl

    def _finish(self, curl: Any, code: int, message: str) -> None:
        transfer = self._transfers.pop(curl)
        self._engine.multi.remove_handle(curl)
        elapsed_s = time.monotonic() - transfer.started_at
        try:
            result = reply_of(transfer, elapsed_s) if code == 0 else diagnose(facts_of(transfer, code, message, elapsed_s))
        except Exception as bug:  # noqa: BLE001 - it must reach the task that waits, which would wait for ever otherwise
            transfer.settle(bug)
            return
        # A failed transfer may leave state in its handle; a new one costs microseconds.
        if code == 0:
            self._idle.append(transfer)
        else:
            curl.close()
        if transfer.resend_refused:
            self._reuse_from = time.monotonic() + _DISTRUST_S
        transfer.settle(result)

    def _drop(self, transfer: Transfer) -> None:
        del self._transfers[transfer.curl]
        self._engine.multi.remove_handle(transfer.curl)
        transfer.curl.close()

    def _schedule_sweep(self) -> None:
        # A stall is noticed at most a fifth later than promised: one tenth to see the last byte, one to see none since.
        self._sweeper = self._loop.call_later(self._timeouts.stall_s / 10, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = time.monotonic()
        for transfer in list(self._transfers.values()):
            if self._is_stalled(transfer, now):
                message = f"no byte in either direction for {now - transfer.moved_at:.1f} s"
                facts = facts_of(transfer, pycurl.E_OPERATION_TIMEDOUT, message, now - transfer.started_at)
                self._drop(transfer)
                transfer.settle(diagnose(facts))
        if self._transfers:
            self._schedule_sweep()

    def _is_stalled(self, transfer: Transfer, now: float) -> bool:
        curl = transfer.curl
        # Until the request begins to leave, the connect limit is the one that counts.
        if curl.getinfo(pycurl.REQUEST_SIZE) == 0:
            transfer.moved_at = now
            return False
        moved = curl.getinfo(pycurl.REQUEST_SIZE) + curl.getinfo(pycurl.HEADER_SIZE)
        moved += curl.getinfo(pycurl.SIZE_UPLOAD_T) + curl.getinfo(pycurl.SIZE_DOWNLOAD_T)
        if moved != transfer.moved_bytes:
            transfer.moved_bytes, transfer.moved_at = moved, now
            return False
        return now - transfer.moved_at >= self._timeouts.stall_s


def _milliseconds(seconds: float) -> int:
    # 0 would mean libcurl's default, or no limit at all.
    return max(1, min(round(seconds * 1000), 2**31 - 1))
