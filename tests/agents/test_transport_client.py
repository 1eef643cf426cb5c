"""What the HTTP client does when all is well: headers, reuse, concurrency, cancellation, TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from pathlib import Path

import pycurl
import pytest
import uvloop

from collector.settings import Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import Exchange, HttpReply, Phase, TransportFailure
from collector.transport.transfer import Transfer, reply_of
from tests.agents.sockets import Peer, Wire, answers_all, peer, reply


@pytest.mark.parametrize("run", [pytest.param(uvloop.run, id="uvloop"), pytest.param(asyncio.run, id="asyncio")])
def test_connections_are_kept_and_the_body_arrives_whole(run) -> None:
    async def scenario() -> tuple[list[Exchange], Peer]:
        async with peer(answers_all) as seen, HttpClient(Timeouts()) as client:
            bodies = [b'{"n": %d}' % n * (1 + n * 30_000) for n in range(3)]
            return [await client.post_json(seen.url, body, ["Authorization: Bearer k"]) for body in bodies], seen

    exchanges, seen = run(scenario())

    assert [exchange.status for exchange in exchanges if isinstance(exchange, HttpReply)] == [200, 200, 200]
    assert [len(body) for body in seen.requests] == [8, 8 * 30_001, 8 * 60_001]
    assert seen.connections == 1
    assert b"authorization: bearer k" in seen.heads[0].lower()
    assert b"content-type: application/json" in seen.heads[0].lower()
    assert b"expect:" not in b"".join(seen.heads).lower()


def test_headers_are_those_of_one_request() -> None:
    """One handle serves many requests, to other hosts as well."""

    async def scenario() -> Peer:
        async with peer(answers_all) as seen, HttpClient(Timeouts()) as client:
            await client.post_json(seen.url, b"{}", ["Authorization: Bearer probe-key"])
            await client.get(seen.url)
            await client.get(seen.url, ["Authorization: Bearer other-key"])
            await client.get(seen.url)
            await client.post_json(seen.url, b"{}")
            return seen

    heads = [head.lower() for head in uvloop.run(scenario()).heads]

    assert [b"authorization:" in head for head in heads] == [True, False, True, False, False]
    assert [b"content-type: application/json" in head for head in heads] == [True, False, False, False, True]


def test_an_error_status_is_a_reply_with_its_retry_after() -> None:
    async def busy(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply(b"later", "429 Too Many Requests", "retry-AFTER:  7\r\n"))

    async def scenario() -> Exchange:
        async with peer(busy) as seen, HttpClient(Timeouts()) as client:
            return await client.post_json(seen.url, b"{}")

    exchange = uvloop.run(scenario())

    assert isinstance(exchange, HttpReply)
    assert (exchange.status, exchange.body, exchange.retry_after) == (429, b"later", "7")


def test_a_redirect_is_not_followed() -> None:
    async def moved(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply(b"", "307 Temporary Redirect", "Location: /elsewhere\r\n"))
        await wire.request()

    async def scenario() -> tuple[Exchange, Peer]:
        async with peer(moved) as seen, HttpClient(Timeouts()) as client:
            return await client.post_json(seen.url, b"{}"), seen

    exchange, seen = uvloop.run(scenario())

    assert isinstance(exchange, HttpReply)
    assert exchange.status == 307
    assert len(seen.requests) == 1


def test_more_requests_than_kept_connections_run_at_once_and_none_waits_for_a_slot() -> None:
    async def slow(wire: Wire) -> None:
        while True:
            await wire.request()
            await asyncio.sleep(0.5)
            await wire.send(reply())

    async def scenario() -> list[Exchange]:
        async with peer(slow, backlog=512) as seen, HttpClient(Timeouts(request_s=5), max_idle=10) as client:
            return await asyncio.gather(*(client.post_json(seen.url, b"{}") for _ in range(256)))

    started = time.monotonic()
    exchanges = uvloop.run(scenario())

    assert all(isinstance(exchange, HttpReply) for exchange in exchanges)
    assert time.monotonic() - started < 15


def test_many_tasks_that_share_handles_and_connections_each_get_their_own_reply() -> None:
    async def echoes(wire: Wire) -> None:
        while True:
            await wire.send(reply(await wire.request()))

    async def scenario() -> tuple[list[list[bytes]], Peer]:
        async with peer(echoes) as seen, HttpClient(Timeouts(request_s=10), max_idle=8) as client:

            async def worker(name: int) -> list[bytes]:
                exchanges = [await client.post_json(seen.url, b"%d-%d" % (name, n)) for n in range(40)]
                return [exchange.body for exchange in exchanges if isinstance(exchange, HttpReply)]

            return await asyncio.gather(*(worker(name) for name in range(8))), seen

    bodies, seen = uvloop.run(scenario())

    assert bodies == [[b"%d-%d" % (name, n) for n in range(40)] for name in range(8)]
    assert seen.connections == 8


def test_cancelling_a_request_closes_its_connection_and_leaves_the_client_usable() -> None:
    async def scenario() -> tuple[Exchange, bool]:
        arrived, gone = asyncio.Event(), asyncio.Event()

        async def answers_second(wire: Wire) -> None:
            if await wire.request() == b"second":
                await wire.send(reply())
                return
            arrived.set()
            try:
                await wire.request()
            except asyncio.IncompleteReadError:
                gone.set()

        async with peer(answers_second) as seen, HttpClient(Timeouts()) as client:
            first = asyncio.create_task(client.post_json(seen.url, b"first"))
            await asyncio.wait_for(arrived.wait(), 5)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            second = await client.post_json(seen.url, b"second")
            await asyncio.wait_for(gone.wait(), 5)
            return second, first.cancelled()

    exchange, cancelled = uvloop.run(scenario())

    assert isinstance(exchange, HttpReply)
    assert cancelled


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


def tls_post(certificate: Path, environ: dict[str, str]) -> Exchange:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def scenario() -> Exchange:
        async with peer(answers_all, ssl=context) as seen, HttpClient(Timeouts(), environ=environ) as client:
            return await client.post_json(seen.url, b"{}")

    return uvloop.run(scenario())


def test_an_unknown_certificate_is_refused_before_anything_is_sent(certificate: Path) -> None:
    exchange = tls_post(certificate, {})

    assert isinstance(exchange, TransportFailure)
    assert exchange.error_name == "CURLE_PEER_FAILED_VERIFICATION"
    assert exchange.phase is Phase.SECURING
    assert exchange.delivery == "not_sent"


def test_a_certificate_named_by_the_environment_is_trusted(certificate: Path) -> None:
    exchange = tls_post(certificate, {"SSL_CERT_FILE": str(certificate.with_suffix(".crt"))})

    assert isinstance(exchange, HttpReply)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async def scenario() -> Exchange:
        async with peer(answers_all) as seen, HttpClient(Timeouts()) as client:
            return await client.post_json(seen.url, b"{}")

    assert isinstance(uvloop.run(scenario()), HttpReply)


def test_a_handle_that_rests_keeps_nothing_of_its_last_reply() -> None:
    """A reply may be as long as MAX_BODY_BYTES, and as many handles rest as requests were in flight."""

    async def scenario() -> tuple[list[bytes], object, Exchange]:
        transfer = Transfer(pycurl.Curl())
        waiting: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        transfer.begin(waiting, "http://127.0.0.1:1", b"{}", [], now=0.0, is_fresh=False)
        transfer.chunks.append(b"reply")
        transfer.headers.append(b"HTTP/1.1 200 OK")
        transfer.settle(reply_of(transfer, 0.1))
        return [*transfer.chunks, *transfer.headers], transfer.future, await waiting

    kept, future, exchange = uvloop.run(scenario())

    assert (kept, future) == ([], None)
    assert isinstance(exchange, HttpReply)
    assert exchange.body == b"reply"


def test_a_client_that_is_left_ends_the_requests_under_way() -> None:
    async def silent(wire: Wire) -> None:
        await wire.request()
        await asyncio.sleep(30)

    async def scenario() -> bool:
        async with peer(silent) as seen:
            async with HttpClient(Timeouts()) as client:
                waiting = asyncio.create_task(client.post_json(seen.url, b"{}"))
                await asyncio.sleep(0.1)
            await asyncio.wait({waiting}, timeout=5)
            return waiting.cancelled()

    assert uvloop.run(scenario())


def test_a_handle_serves_requests_of_all_kinds_one_after_the_other() -> None:
    async def scenario() -> tuple[list[Exchange], Peer]:
        async with peer(answers_all) as seen, HttpClient(Timeouts()) as client:
            posted = [await client.post_json(seen.url, body, lines) for body, lines in ((b"{}", []), (b"[1]", ["X-A: 1"]))]
            got = await client.get(f"{seen.url}?again", ["X-B: 2"])
            return [*posted, got, await client.post_json(seen.url, b"[2]")], seen

    exchanges, seen = uvloop.run(scenario())

    assert all(isinstance(exchange, HttpReply) for exchange in exchanges)
    assert seen.requests == [b"{}", b"[1]", b"", b"[2]"]
    assert [head.split(b" ")[0] for head in seen.heads] == [b"POST", b"POST", b"GET", b"POST"]
    assert [b"x-a: 1" in head.lower() for head in seen.heads] == [False, True, False, False]
    assert [b"x-b: 2" in head.lower() for head in seen.heads] == [False, False, True, False]
