"""Requests per second and CPU per request of the HTTP client against an instant server, beside aiohttp when installed.

    python bench/transport.py [--requests 20000]

Each client runs in a process of its own against one server process, on the same bodies, one after the other; the ratios of
one run are what counts, the absolute numbers belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 900}]}).encode()
REPLY = json.dumps({"choices": [{"message": {"content": "y" * 3900}, "finish_reason": "stop"}]}).encode()
CONCURRENCIES = (64, 256)


class Instant(asyncio.Protocol):
    """Answers each complete request at once; reads no more of HTTP than it needs."""

    raw = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(REPLY) + REPLY

    def __init__(self) -> None:
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while True:
            end = self.pending.find(b"\r\n\r\n")
            if end < 0 or len(self.pending) < end + 4 + len(BODY):
                return
            self.pending = self.pending[end + 4 + len(BODY) :]
            self.transport.write(self.raw)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def workers(requests: int, concurrency: int, post: Callable[[], Awaitable[bytes]]) -> None:
    turns = iter(range(requests))

    async def worker() -> None:
        for _ in turns:
            if await post() != REPLY:
                raise SystemExit("a reply is not what the server sent")

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def ours(url: str, requests: int, concurrency: int) -> None:
    from collector.settings import Timeouts  # noqa: PLC0415 - the other client's process does not load ours
    from collector.transport.client import HttpClient  # noqa: PLC0415
    from collector.transport.exchange import HttpReply  # noqa: PLC0415

    async with HttpClient(Timeouts(), max_idle=concurrency) as client:

        async def post() -> bytes:
            exchange = await client.post_json(url, BODY)
            return exchange.body if isinstance(exchange, HttpReply) else exchange.reason.encode()

        await workers(requests, concurrency, post)


async def aiohttp(url: str, requests: int, concurrency: int) -> None:
    import aiohttp  # noqa: PLC0415 - optional

    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def post() -> bytes:
            async with session.post(url, data=BODY, headers=headers) as reply:
                return await reply.read()

        await workers(requests, concurrency, post)


def measure(client: str, url: str, requests: int, concurrency: int) -> None:
    run = {"ours": ours, "aiohttp": aiohttp}[client]
    uvloop.run(run(url, concurrency * 4, concurrency))
    wall, cpu = time.perf_counter(), time.process_time()
    uvloop.run(run(url, requests, concurrency))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"rps": requests / wall, "cpu_us": cpu / requests * 1e6}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--child", nargs=3, metavar=("CLIENT", "URL", "CONCURRENCY"), help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve())
    elif options.child:
        measure(options.child[0], options.child[1], options.requests, int(options.child[2]))
    else:
        compare(options.requests)


def compare(requests: int) -> None:
    clients = ["ours", *(["aiohttp"] if find_spec("aiohttp") else [])]
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1/chat/completions"
        print(f"{'concurrency':>11}  {'client':<8} {'requests/s':>10} {'CPU us/request':>15} {'CPU ratio':>10}")
        try:
            for concurrency in CONCURRENCIES:
                base = 0.0
                for client in clients:
                    command = [sys.executable, __file__, f"--requests={requests}", "--child", client, url, str(concurrency)]
                    found = json.loads(subprocess.check_output(command))
                    base = base or found["cpu_us"]
                    row = f"{concurrency:>11}  {client:<8} {found['rps']:>10,.0f} {found['cpu_us']:>15.1f}"
                    print(f"{row} {found['cpu_us'] / base:>9.2f}x", flush=True)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
