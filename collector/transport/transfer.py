"""One request under way in a libcurl handle: what goes in, what came out, and what is known when it failed."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pycurl

from collector.transport.exchange import CurlFacts, Exchange, HttpReply


@dataclass(slots=True, eq=False)
class Transfer:
    """One request under way."""

    curl: Any
    body_size_bytes: int
    future: asyncio.Future[Exchange]
    is_tls: bool
    started_at: float
    chunks: list[bytes] = field(default_factory=list[bytes])
    headers: list[bytes] = field(default_factory=list[bytes])
    resend_refused: bool = False
    moved_bytes: int = -1
    moved_at: float = 0.0

    def settle(self, result: Exchange) -> None:
        # A task that was cancelled a moment ago no longer waits.
        if not self.future.done():
            self.future.set_result(result)

    def refuse_rewind(self, offset: int, origin: int) -> int:
        del offset, origin
        self.resend_refused = True
        return pycurl.SEEKFUNC_FAIL


def prepare(transfer: Transfer, url: str, body: bytes | None, headers: list[str]) -> None:
    """Tell the transfer's handle what to send and where the reply goes."""
    curl = transfer.curl
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.HTTPHEADER, headers)
    curl.setopt(pycurl.WRITEFUNCTION, transfer.chunks.append)
    curl.setopt(pycurl.HEADERFUNCTION, transfer.headers.append)
    if body is None:
        curl.setopt(pycurl.HTTPGET, 1)
        return
    curl.setopt(pycurl.POST, 1)
    curl.setopt(pycurl.POSTFIELDSIZE_LARGE, len(body))
    curl.setopt(pycurl.READFUNCTION, BytesIO(body).read)
    curl.setopt(pycurl.SEEKFUNCTION, transfer.refuse_rewind)


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
