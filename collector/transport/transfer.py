"""A libcurl handle and the request under way in it: what goes in, what came out, and what is known when it failed."""

from __future__ import annotations

import asyncio
import socket
from io import BytesIO
from typing import Any

import pycurl

from collector.transport.exchange import CurlFacts, Exchange, HttpReply


class Transfer:
    """A handle that serves one request after the other; what the next one has in common with the last is not said again.

    ``future`` is that of the request under way. A handle that rests keeps nothing of the last reply.
    """

    __slots__ = (
        "_is_fresh", "_is_post", "_lines", "_size", "_url", "body_size_bytes", "chunks", "curl", "future", "headers", "is_tls",
        "moved_at", "moved_bytes", "resend_refused", "started_at",
    )  # fmt: skip

    def __init__(self, curl: Any) -> None:
        self.curl = curl
        self.future: asyncio.Future[Exchange] | None = None
        self.chunks: list[bytes] = []
        self.headers: list[bytes] = []
        self._url = ""
        self._lines: list[str] = []
        self._size = -1
        self._is_post = self._is_fresh = False
        curl.setopt(pycurl.WRITEFUNCTION, self.chunks.append)
        curl.setopt(pycurl.HEADERFUNCTION, self.headers.append)
        curl.setopt(pycurl.SEEKFUNCTION, self._refuse_rewind)

    def begin(
        self, future: asyncio.Future[Exchange], url: str, body: bytes | None, lines: list[str], *, now: float, is_fresh: bool
    ) -> None:
        """Tell the handle what to send; the reply goes to ``future``. ``is_fresh``: on a connection of its own."""
        self.future = future
        self.started_at = now
        self.moved_bytes, self.moved_at = -1, 0.0
        self.resend_refused = False
        setopt = self.curl.setopt
        if url != self._url:
            self._url, self.is_tls = url, url.startswith("https:")
            setopt(pycurl.URL, url)
        if lines != self._lines:
            self._lines = lines
            if lines:
                setopt(pycurl.HTTPHEADER, lines)
            else:
                # An empty list would change nothing, and send the last request's headers again, its key among them.
                self.curl.unsetopt(pycurl.HTTPHEADER)
        if is_fresh != self._is_fresh:
            self._is_fresh = is_fresh
            setopt(pycurl.FRESH_CONNECT, int(is_fresh))
        self._give(body)

    def settle(self, result: Exchange | Exception) -> None:
        """End the request: tell the task that waits what came of it."""
        future, self.future = self.future, None
        self.chunks.clear()
        self.headers.clear()
        # One that was cancelled a moment ago no longer waits.
        if future is None or future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _give(self, body: bytes | None) -> None:
        setopt = self.curl.setopt
        is_post = body is not None
        if is_post is not self._is_post:
            self._is_post, self._size = is_post, -1
            setopt(pycurl.POST if is_post else pycurl.HTTPGET, 1)
        self.body_size_bytes = 0
        if body is not None:
            self.body_size_bytes = len(body)
            if len(body) != self._size:
                self._size = len(body)
                setopt(pycurl.POSTFIELDSIZE_LARGE, len(body))
            setopt(pycurl.READFUNCTION, BytesIO(body).read)

    def _refuse_rewind(self, offset: int, origin: int) -> int:
        del offset, origin
        self.resend_refused = True
        return pycurl.SEEKFUNC_FAIL


def reply_of(transfer: Transfer, elapsed_s: float) -> HttpReply:
    """The reply of a transfer that ended well."""
    chunks = transfer.chunks
    status: int = transfer.curl.getinfo(pycurl.RESPONSE_CODE)
    return HttpReply(
        status=status,
        body=chunks[0] if len(chunks) == 1 else b"".join(chunks),
        elapsed_s=elapsed_s,
        retry_after=_header(transfer.headers, b"retry-after:") if status >= 400 else None,
    )


def facts_of(transfer: Transfer, code: int, message: str, elapsed_s: float) -> CurlFacts:
    """What libcurl knows of a transfer that ended badly, or is about to be ended."""
    info = transfer.curl.getinfo
    return CurlFacts(
        code=code,
        message=message,
        os_errno=info(pycurl.OS_ERRNO) or _local_shortage(code),
        resolved_s=info(pycurl.NAMELOOKUP_TIME),
        connected_s=info(pycurl.CONNECT_TIME),
        first_byte_s=info(pycurl.STARTTRANSFER_TIME) if transfer.headers else 0.0,
        elapsed_s=elapsed_s,
        request_bytes=info(pycurl.REQUEST_SIZE),
        uploaded_bytes=info(pycurl.SIZE_UPLOAD_T),
        body_size_bytes=transfer.body_size_bytes,
        is_tls=transfer.is_tls,
        resend_refused=transfer.resend_refused,
    )


def _local_shortage(code: int) -> int:
    # libcurl does not pass on why the system refused it a socket: asking for one tells.
    if code == pycurl.E_COULDNT_CONNECT:
        try:
            socket.socket().close()
        except OSError as error:
            return error.errno or 0
    return 0


def _header(lines: list[bytes], name: bytes) -> str | None:
    for line in reversed(lines):
        if line[: len(name)].lower() == name:
            return line[len(name) :].decode("latin-1").strip()
        # Only the last header block counts; interim replies come before it.
        if line.startswith(b"HTTP/"):
            break
    return None
