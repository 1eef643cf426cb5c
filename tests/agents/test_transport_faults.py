"""What becomes of a request when the peer or the network misbehaves, against real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
import uvloop

from collector.outcomes import Delivery, FailureKind
from collector.settings import Timeouts
from collector.transport import client as client_module
from collector.transport.client import HttpClient
from collector.transport.exchange import Exchange, HttpReply, Phase, TransportFailure
from tests.agents.sockets import Peer, Wire, peer, reply

BODY = b'{"prompt": "2+3?"}'


async def post(url: str, timeouts: Timeouts | None = None) -> Exchange:
    async with HttpClient(timeouts or Timeouts()) as client:
        return await client.post_json(url, BODY)


def failure_of(exchange: Exchange) -> TransportFailure:
    assert isinstance(exchange, TransportFailure)
    return exchange


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def full_backlog() -> Iterator[int]:
    """A listening port whose queue is full: the kernel drops further SYNs, as a blackhole does."""
    with socket.socket() as listener, contextlib.ExitStack() as held:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            pending = held.enter_context(socket.socket())
            pending.setblocking(False)
            pending.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_refused_port_is_unreachable_and_provably_not_sent(closed_port: int) -> None:
    failure = failure_of(uvloop.run(post(f"http://127.0.0.1:{closed_port}/v1")))

    assert failure.kind is FailureKind.TRANSPORT_UNREACHABLE
    assert failure.delivery is Delivery.NOT_SENT
    assert failure.phase is Phase.CONNECTING
    assert failure.error_name == "CURLE_COULDNT_CONNECT"
    assert str(closed_port) in failure.reason


def test_a_name_that_does_not_exist_is_unreachable_and_provably_not_sent() -> None:
    failure = failure_of(uvloop.run(post("http://model.invalid/v1")))

    assert failure.kind is FailureKind.TRANSPORT_UNREACHABLE
    assert failure.delivery is Delivery.NOT_SENT
    assert failure.phase is Phase.RESOLVING
    assert "model.invalid" in failure.reason


def test_a_connection_that_never_opens_ends_at_the_connect_limit(full_backlog: int) -> None:
    started = time.monotonic()
    failure = failure_of(uvloop.run(post(f"http://127.0.0.1:{full_backlog}/v1", Timeouts(connect_s=0.5))))

    assert time.monotonic() - started < 8
    assert failure.kind is FailureKind.TRANSPORT_UNREACHABLE
    assert failure.delivery is Delivery.NOT_SENT
    assert failure.phase is Phase.CONNECTING


async def never_answers(wire: Wire) -> None:
    await wire.request()
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    "timeouts",
    [pytest.param(Timeouts(request_s=0.5), id="whole-request"), pytest.param(Timeouts(stall_s=0.5), id="no-bytes")],
)
def test_silence_after_the_request_is_a_timeout_that_was_possibly_delivered(timeouts: Timeouts) -> None:
    async def scenario() -> tuple[Exchange, Peer]:
        async with peer(never_answers) as seen:
            return await post(seen.url, timeouts), seen

    started = time.monotonic()
    exchange, seen = uvloop.run(scenario())
    failure = failure_of(exchange)

    assert time.monotonic() - started < 8
    assert failure.kind is FailureKind.TRANSPORT_TIMEOUT
    assert failure.delivery is Delivery.POSSIBLY_DELIVERED
    assert failure.phase is Phase.WAITING
    assert seen.requests == [BODY]


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port on which the kernel accepts a connection that nobody reads; it takes what fits its small buffer."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_server_that_accepts_and_reads_nothing_is_a_timeout(deaf_port: int) -> None:
    async def scenario() -> Exchange:
        async with HttpClient(Timeouts(stall_s=0.5)) as client:
            return await client.post_json(f"http://127.0.0.1:{deaf_port}/v1", b"x" * (64 << 20))

    failure = failure_of(uvloop.run(scenario()))

    assert failure.kind is FailureKind.TRANSPORT_TIMEOUT
    assert failure.phase is Phase.SENDING
    assert failure.delivery is Delivery.POSSIBLY_DELIVERED


@pytest.mark.parametrize(
    ("raw", "phase", "error_name"),
    [
        pytest.param(b"", Phase.WAITING, "CURLE_GOT_NOTHING", id="no-byte"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789", Phase.READING, "CURLE_PARTIAL_FILE", id="mid-body"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
            Phase.READING,
            "CURLE_PARTIAL_FILE",
            id="between-chunks",
        ),
    ],
)
def test_a_dropped_connection_is_a_peer_drop_and_is_requested_once(raw: bytes, phase: Phase, error_name: str) -> None:
    async def drops(wire: Wire) -> None:
        await wire.request()
        await wire.send(raw)

    async def scenario() -> tuple[Exchange, Peer]:
        async with peer(drops) as seen:
            return await post(seen.url), seen

    exchange, seen = uvloop.run(scenario())
    failure = failure_of(exchange)

    assert failure.kind is FailureKind.TRANSPORT_PEER_DROP
    assert failure.delivery is Delivery.POSSIBLY_DELIVERED
    assert failure.phase is phase
    assert failure.error_name == error_name
    assert len(seen.requests) == 1


def test_a_reply_that_is_not_http_is_a_peer_drop() -> None:
    async def speaks_smtp(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"220 mail ready\r\n")

    async def scenario() -> Exchange:
        async with peer(speaks_smtp) as seen:
            return await post(seen.url)

    assert failure_of(uvloop.run(scenario())).kind is FailureKind.TRANSPORT_PEER_DROP


def test_a_slow_reply_that_keeps_moving_is_read_to_its_end() -> None:
    async def drips(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.15)
            await wire.send(b"x")

    async def scenario() -> Exchange:
        async with peer(drips) as seen:
            return await post(seen.url, Timeouts(stall_s=0.6))

    exchange = uvloop.run(scenario())

    assert isinstance(exchange, HttpReply)
    assert exchange.body == b"x" * 8
    assert exchange.elapsed_s > 1


def test_a_request_on_a_connection_that_died_is_never_sent_twice() -> None:
    """libcurl would send it again on a new connection by itself; the server counts what arrives."""

    async def answers_then_dies(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply())
        await wire.request()

    async def scenario() -> tuple[list[Exchange], Peer]:
        async with peer(answers_then_dies) as seen, HttpClient(Timeouts()) as client:
            return [await client.post_json(seen.url, b'{"n": %d}' % n) for n in range(2)], seen

    exchanges, seen = uvloop.run(scenario())
    failure = failure_of(exchanges[1])

    assert failure.kind is FailureKind.TRANSPORT_PEER_DROP
    assert failure.delivery is Delivery.POSSIBLY_DELIVERED
    assert "was not sent a second time" in failure.reason
    assert seen.requests == [b'{"n": 0}', b'{"n": 1}']
    assert seen.connections == 1


def test_a_server_that_closes_unannounced_costs_one_request_and_not_every_second_one() -> None:
    async def closes_after_each(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply())

    async def scenario() -> list[Exchange]:
        async with peer(closes_after_each) as seen, HttpClient(Timeouts()) as client:
            replies: list[Exchange] = []
            for _ in range(6):
                replies.append(await client.post_json(seen.url, BODY))
                await asyncio.sleep(0.02)
            return replies

    exchanges = uvloop.run(scenario())

    assert [type(exchange) for exchange in exchanges].count(TransportFailure) <= 1
    assert isinstance(exchanges[-1], HttpReply)


def test_a_reply_beyond_the_size_limit_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1 << 20)

    async def endless(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await wire.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    async def scenario() -> Exchange:
        async with peer(endless) as seen:
            return await post(seen.url)

    failure = failure_of(uvloop.run(scenario()))

    assert failure.kind is FailureKind.TRANSPORT_LOCAL_RESOURCE
    assert failure.error_name == "CURLE_FILESIZE_EXCEEDED"


def test_a_process_out_of_descriptors_says_so() -> None:
    import resource

    async def scenario() -> Exchange:
        async with peer(never_answers) as seen, HttpClient(Timeouts(request_s=1)) as client:
            await client.post_json(seen.url, BODY)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            spare = socket.socket()
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare.fileno(), hard))
            try:
                return await client.post_json(seen.url, BODY)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                spare.close()

    failure = failure_of(uvloop.run(scenario()))

    assert failure.kind is FailureKind.TRANSPORT_LOCAL_RESOURCE
    assert failure.delivery is Delivery.NOT_SENT
    assert "Too many open files" in failure.reason
