"""Servers for transport tests: each connection is handled by a coroutine of the test, and every complete request is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Peer:
    """What a scripted server saw."""

    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)


class Wire:
    """One connection: read a request, write raw bytes."""

    def __init__(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peer, self._reader, self.writer = peer, reader, writer

    async def request(self) -> bytes:
        """The body of the next request; IncompleteReadError at the end of the connection."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self._peer.heads.append(head)
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        body = await self._reader.readexactly(size)
        self._peer.requests.append(body)
        return body

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()


def reply(body: bytes = b"{}", status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@asynccontextmanager
async def peer(script: Callable[[Wire], Awaitable[None]], **options: object) -> AsyncGenerator[Peer]:
    """A server on a free port of 127.0.0.1 that runs ``script`` for each connection."""
    seen = Peer()
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.current_task()
        tasks.add(task)
        try:
            await script(Wire(seen, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0, limit=1 << 24, **options)
    scheme = "https" if "ssl" in options else "http"
    seen.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield seen
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answers_all(wire: Wire) -> None:
    while True:
        await wire.request()
        await wire.send(reply())
