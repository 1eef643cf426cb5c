"""When a request is repeated inside an attempt, and what the attempt's failure says when it is not."""

from __future__ import annotations

import asyncio
import logging

import pytest
import uvloop

from collector.agents.requests import Sender, asked_delay_s, excerpt, failure_of, repeat_delay_s
from collector.outcomes import Delivery, Failure, FailureClass, FailureKind
from collector.settings import RetrySettings, Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import Exchange, HttpReply, Phase, TransportFailure
from tests.agents.sockets import Peer, Wire, peer, reply

RETRY = RetrySettings(max_tries=4, backoff_s=1, backoff_max_s=3, retry_deadline_s=100)


def refused(delivery: Delivery = Delivery.NOT_SENT) -> TransportFailure:
    return TransportFailure(
        kind=FailureKind.TRANSPORT_UNREACHABLE,
        delivery=delivery,
        phase=Phase.CONNECTING,
        reason="Failed to connect (connecting)",
        error_name="CURLE_COULDNT_CONNECT",
        elapsed_s=0.1,
    )


def status(code: int, retry_after: str | None = None) -> HttpReply:
    return HttpReply(status=code, body=b'{"error": "no"}', elapsed_s=0.1, retry_after=retry_after)


def delay(exchange: Exchange, *, tries: int = 1, elapsed_s: float = 0, asked_s: float | None = None) -> float | None:
    return repeat_delay_s(exchange, RETRY, tries=tries, elapsed_s=elapsed_s, asked_s=asked_s, chance=0.999999)


@pytest.mark.parametrize(
    ("exchange", "repeated"),
    [
        pytest.param(refused(), True, id="provably-not-sent"),
        pytest.param(refused(Delivery.POSSIBLY_DELIVERED), False, id="possibly-delivered"),
        *(
            pytest.param(status(code), code in {429, 503}, id=str(code))
            for code in (400, 401, 404, 422, 429, 500, 502, 503, 504)
        ),
    ],
)
def test_only_what_was_not_executed_is_repeated(exchange: Exchange, repeated: bool) -> None:
    assert (delay(exchange) is not None) is repeated


def test_the_wait_doubles_up_to_its_limit_and_ends_with_the_tries() -> None:
    waits = [delay(refused(), tries=tries) for tries in (1, 2, 3, 4)]

    assert waits[:3] == pytest.approx([1, 2, 3], rel=1e-3)
    assert waits[3] is None


def test_a_wait_asked_for_is_kept_and_never_goes_beyond_the_deadline() -> None:
    assert delay(status(429), asked_s=40) == 40
    assert delay(status(429), asked_s=4000, elapsed_s=30) == 70
    assert delay(status(429), asked_s=1, elapsed_s=100) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("7", 7, id="seconds"),
        pytest.param("Thu, 01 Jan 1970 00:01:40 GMT", 90, id="date"),
        pytest.param("Thu, 01 Jan 1970 00:00:01 GMT", 0, id="date-gone-by"),
        pytest.param("-5", None, id="negative"),
        pytest.param("soon", None, id="word"),
        pytest.param("²", None, id="superscript"),
        pytest.param("9" * 400, 999_999_999, id="absurd"),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str, seconds: float | None) -> None:
    assert asked_delay_s(status(429, header), now=10) == seconds


@pytest.mark.parametrize(
    ("exchange", "failure_class", "terminal"),
    [
        pytest.param(refused(), FailureClass.AGENT_REQUEST_FAILED, False, id="no-status"),
        *(pytest.param(status(code), FailureClass.AGENT_REQUEST_FAILED, False, id=str(code)) for code in (429, 502, 503, 504)),
        *(pytest.param(status(code), FailureClass.AGENT_RUN_ERROR, False, id=str(code)) for code in (401, 403, 404, 405, 500)),
        *(pytest.param(status(code), FailureClass.AGENT_RUN_ERROR, True, id=str(code)) for code in (400, 413, 422)),
    ],
)
def test_a_failure_is_classed_by_what_may_have_run(exchange: Exchange, failure_class: FailureClass, terminal: bool) -> None:
    failure = failure_of(exchange)

    assert (failure.failure_class, failure.terminal) == (failure_class, terminal)


def test_evidence_is_two_thousand_characters_and_says_when_it_was_cut() -> None:
    assert excerpt("é".encode() * 2000) == "é" * 2000
    assert excerpt("é".encode() * 2001) == "é" * 2000 + "…"
    assert excerpt(b"\xff{}") == "\ufffd{}"


class Waits:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def send(script, waits: Waits, headers: tuple[str, ...] = (), retry: RetrySettings = RETRY) -> tuple[HttpReply | Failure, Peer]:
    async def scenario() -> tuple[HttpReply | Failure, Peer]:
        async with peer(script) as seen, HttpClient(Timeouts()) as client:
            sender = Sender(client, retry, clock=lambda: waits.now, sleep=waits.sleep, chance=lambda: 0.5)
            return await sender.post(seen.url, b"{}", headers), seen

    return uvloop.run(scenario())


def test_a_busy_server_is_asked_again_when_it_said_so() -> None:
    statuses = iter(["429 Too Many Requests", "503 Service Unavailable", "200 OK"])

    async def busy(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.send(reply(status=next(statuses), headers="Retry-After: 5\r\n"))

    waits = Waits()
    got, seen = send(busy, waits)

    assert isinstance(got, HttpReply)
    assert waits.slept == [5, 5]
    assert len(seen.requests) == 3


def test_a_dead_endpoint_is_given_up_after_the_tries_and_is_warned_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()

    async def scenario() -> HttpReply | Failure:
        async with HttpClient(Timeouts()) as client:
            sender = Sender(client, RETRY, clock=lambda: waits.now, sleep=waits.sleep, chance=lambda: 0.5)
            await sender.post("http://user:pass@127.0.0.1:1/v1", b"{}", ())
            return await sender.post("http://user:pass@127.0.0.1:1/v1", b"{}", ())

    with caplog.at_level(logging.WARNING):
        failure = uvloop.run(scenario())

    assert isinstance(failure, Failure)
    assert failure.kind == FailureKind.TRANSPORT_UNREACHABLE
    assert failure.delivery is Delivery.NOT_SENT
    assert failure.reason.endswith("after 4 tries")
    assert len(waits.slept) == 6
    assert [record.getMessage().partition(" after ")[0] for record in caplog.records] == [
        "http://127.0.0.1:1/v1: Failed to connect to 127.0.0.1:1"
    ]


def test_a_dropped_peer_is_not_asked_again_inside_the_attempt() -> None:
    async def drops(wire: Wire) -> None:
        await wire.request()

    waits = Waits()
    got, seen = send(drops, waits)

    assert isinstance(got, Failure)
    assert got.kind == FailureKind.TRANSPORT_PEER_DROP
    assert got.delivery is Delivery.POSSIBLY_DELIVERED
    assert len(seen.requests) == 1
    assert waits.slept == []


def test_a_key_that_the_server_quotes_is_struck_out_of_the_evidence() -> None:
    async def quotes(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply(b"bad key sk-secret-1", "401 Unauthorized"))

    failure, _ = send(quotes, Waits(), ("Authorization: Bearer sk-secret-1",))

    assert isinstance(failure, Failure)
    assert failure.http_status == 401
    assert failure.response_body == "bad key ***"
    assert "sk-secret" not in failure.reason


def test_cancelling_during_a_wait_ends_it_at_once() -> None:
    async def busy(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply(status="503 Service Unavailable"))

    async def scenario() -> None:
        async with peer(busy) as seen, HttpClient(Timeouts()) as client:
            sender = Sender(client, RetrySettings(backoff_s=30))
            await asyncio.wait_for(sender.post(seen.url, b"{}", ()), timeout=0.5)

    with pytest.raises(TimeoutError):
        uvloop.run(scenario())
