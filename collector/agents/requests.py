"""One request of an attempt: repeated while it provably was not executed, and turned into a Failure when it stays unanswered.

| what happened | inside the attempt | afterwards |
| --- | --- | --- |
| refused, unresolvable, connect limit, TLS; 429, 503 | repeated, up to ``max_tries`` and ``retry_deadline_s`` | retryable |
| time limit, dropped peer, out of local resources after sending, other 5xx, unusable body | never repeated | retryable |
| 400, 413, 422 (context overflow among them) | never repeated | terminal: the same body gets the same answer |
| 401, 403, 404, 405 and other statuses | never repeated | retryable: a corrected key or URL cures it |
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from collector.outcomes import BODY_LIMIT, Delivery, Failure, FailureClass, FailureKind, Stage
from collector.settings import RetrySettings
from collector.transport.client import HttpClient
from collector.transport.exchange import Exchange, HttpReply, TransportFailure
from collector.transport.trust import without_credentials

_log = logging.getLogger(__name__)

#: Statuses of a model server that refused a request before it worked on it.
NOT_EXECUTED: Final = frozenset({429, 503})
_MAY_NOT_HAVE_RUN: Final = frozenset({429, 502, 503, 504})
_TERMINAL: Final = frozenset({400, 413, 422})
#: An operator sees that an endpoint is down within seconds, and once a minute as long as it is.
_WARN_EVERY_S: Final = 60.0
_SECRET_LENGTH: Final = 6


class Sender:
    """Posts the requests of one agent under one retry policy. Clock, sleep and chance are arguments for tests."""

    def __init__(
        self,
        client: HttpClient,
        retry: RetrySettings,
        *,
        not_executed: frozenset[int] = NOT_EXECUTED,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._retry = retry
        self._not_executed = not_executed
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._warned_at: float | None = None

    async def post(self, url: str, body: bytes, headers: Sequence[str]) -> HttpReply | Failure:
        """The reply with a 2xx status, or why there is none. Never raises for what the other side does."""
        started = self._clock()
        tries = 0
        while True:
            exchange = redacted(await self._client.post_json(url, body, headers), headers)
            tries += 1
            if isinstance(exchange, HttpReply) and 200 <= exchange.status < 300:
                return exchange
            asked_s = asked_delay_s(exchange, time.time())
            elapsed_s = self._clock() - started
            delay_s = repeat_delay_s(
                exchange, self._retry, tries=tries, elapsed_s=elapsed_s, asked_s=asked_s, chance=self._chance(),
                not_executed=self._not_executed,
            )  # fmt: skip
            if delay_s is None:
                return failure_of(exchange, tries=tries, retry_after_s=asked_s)
            self._warn(url, exchange, delay_s)
            await self._sleep(delay_s)

    def _warn(self, url: str, exchange: Exchange, delay_s: float) -> None:
        now = self._clock()
        if self._warned_at is not None and now - self._warned_at < _WARN_EVERY_S:
            return
        self._warned_at = now
        _log.warning("%s: %s; trying again in %.1f s", without_credentials(url), words_of(exchange), delay_s)


def repeat_delay_s(
    exchange: Exchange,
    retry: RetrySettings,
    *,
    tries: int,
    elapsed_s: float,
    asked_s: float | None,
    chance: float,
    not_executed: frozenset[int] = NOT_EXECUTED,
) -> float | None:
    """Seconds until the request may be sent again inside this attempt; None when the attempt ends here. Pure.

    A wait that the server asked for is kept up to what is left of the deadline; ``chance`` is uniform in [0, 1).
    """
    left_s = retry.retry_deadline_s - elapsed_s
    if not was_not_executed(exchange, not_executed) or tries >= retry.max_tries or left_s <= 0:
        return None
    backoff_s = min(retry.backoff_s * 2.0 ** min(tries - 1, 30), retry.backoff_max_s) * (0.5 + chance / 2)
    return min(max(backoff_s, asked_s or 0.0), left_s)


def was_not_executed(exchange: Exchange, statuses: frozenset[int] = NOT_EXECUTED) -> bool:
    """Whether the other side provably did no work for the request; ``statuses`` are those that prove it."""
    if isinstance(exchange, TransportFailure):
        return exchange.delivery is Delivery.NOT_SENT
    return exchange.status in statuses


def asked_delay_s(exchange: Exchange, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as an HTTP date; None without a usable one."""
    if not isinstance(exchange, HttpReply) or exchange.retry_after is None:
        return None
    text = exchange.retry_after
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def failure_of(exchange: Exchange, *, tries: int = 1, retry_after_s: float | None = None) -> Failure:
    """The failure of an attempt that ends with ``exchange``."""
    counted = f" after {tries} tries" if tries > 1 else ""
    if isinstance(exchange, TransportFailure):
        return Failure(
            failure_class=FailureClass.AGENT_REQUEST_FAILED,
            kind=exchange.kind,
            reason=words_of(exchange) + counted,
            delivery=exchange.delivery,
            stage=Stage.AGENT,
            exception_type=exchange.error_name,
        )
    may_not_have_run = exchange.status in _MAY_NOT_HAVE_RUN
    return Failure(
        failure_class=FailureClass.AGENT_REQUEST_FAILED if may_not_have_run else FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.AGENT_REQUEST_FAILED if may_not_have_run else FailureKind.AGENT_RUN_ERROR,
        reason=words_of(exchange) + counted,
        terminal=exchange.status in _TERMINAL,
        delivery=Delivery.DELIVERED,
        stage=Stage.AGENT,
        http_status=exchange.status,
        exception_type="HttpStatusError",
        response_body=excerpt(exchange.body),
        retry_after_s=retry_after_s,
    )


def unusable_reply(reply: HttpReply, problem: str) -> Failure:
    """The failure of an attempt whose reply came with a good status and no usable answer."""
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.AGENT_RUN_ERROR,
        reason=f"unusable reply: {problem}",
        delivery=Delivery.DELIVERED,
        stage=Stage.AGENT,
        http_status=reply.status,
        exception_type="UnusableReply",
        response_body=excerpt(reply.body),
    )


def redacted(exchange: Exchange, headers: Sequence[str]) -> Exchange:
    """``exchange`` with the values of ``headers`` struck out of an error body: some servers quote the key they refuse."""
    if not isinstance(exchange, HttpReply) or exchange.status < 400:
        return exchange
    body = exchange.body
    for line in headers:
        secret = line.partition(": ")[2].removeprefix("Bearer ").encode("utf-8", "replace")
        # Shorter values are no secrets, and striking them out would garble the text.
        if len(secret) >= _SECRET_LENGTH:
            body = body.replace(secret, b"***")
    return msgspec.structs.replace(exchange, body=body)


def words_of(exchange: Exchange) -> str:
    """What went wrong in the other side's own words, in one line."""
    if isinstance(exchange, TransportFailure):
        return exchange.reason
    said = " ".join(excerpt(exchange.body).split())
    return f"HTTP {exchange.status}: {said}" if said else f"HTTP {exchange.status}"


def excerpt(body: bytes) -> str:
    """The first characters of ``body`` as evidence, with an ellipsis when there are more."""
    # No character of UTF-8 is longer than four bytes, so nothing beyond can be among the first BODY_LIMIT.
    text = body[: 4 * BODY_LIMIT + 4].decode("utf-8", "replace")
    return text if len(text) <= BODY_LIMIT else text[:BODY_LIMIT] + "…"
