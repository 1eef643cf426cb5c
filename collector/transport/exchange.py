"""What comes of one HTTP request: a reply, or why there is none, as frozen values and one pure diagnosis."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from collector.outcomes import Delivery, FailureKind


class Phase(StrEnum):
    """How far a request came before it ended."""

    RESOLVING = "resolving the name"
    CONNECTING = "connecting"
    SECURING = "setting up TLS"
    SENDING = "sending the request"
    WAITING = "waiting for the first byte"
    READING = "reading the reply"


class HttpReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A complete reply, whatever its status says."""

    status: int
    body: bytes
    elapsed_s: float
    #: The Retry-After header as sent; None when there was none.
    retry_after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportFailure:
    """No complete reply. ``delivery`` is ``not_sent`` only when not a byte of the request had left."""

    kind: FailureKind
    delivery: Delivery
    phase: Phase
    reason: str
    #: libcurl's name of the error.
    error_name: str
    elapsed_s: float


Exchange: TypeAlias = HttpReply | TransportFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class CurlFacts:
    """What libcurl knows of a transfer that ended with an error. Times are seconds from its start; 0 means not reached."""

    code: int
    message: str
    os_errno: int
    resolved_s: float
    connected_s: float
    first_byte_s: float
    elapsed_s: float
    request_bytes: int
    uploaded_bytes: int
    body_size_bytes: int
    is_tls: bool
    #: libcurl asked to send the body again on a new connection, and was refused.
    resend_refused: bool = False


#: Numbers of libcurl's stable interface (curl/curl.h); the rest keep their number as their name.
_NAMES: Final = {
    3: "CURLE_URL_MALFORMAT",
    5: "CURLE_COULDNT_RESOLVE_PROXY",
    6: "CURLE_COULDNT_RESOLVE_HOST",
    7: "CURLE_COULDNT_CONNECT",
    8: "CURLE_WEIRD_SERVER_REPLY",
    16: "CURLE_HTTP2",
    18: "CURLE_PARTIAL_FILE",
    23: "CURLE_WRITE_ERROR",
    27: "CURLE_OUT_OF_MEMORY",
    28: "CURLE_OPERATION_TIMEDOUT",
    35: "CURLE_SSL_CONNECT_ERROR",
    52: "CURLE_GOT_NOTHING",
    55: "CURLE_SEND_ERROR",
    56: "CURLE_RECV_ERROR",
    60: "CURLE_PEER_FAILED_VERIFICATION",
    63: "CURLE_FILESIZE_EXCEEDED",
    65: "CURLE_SEND_FAIL_REWIND",
    77: "CURLE_SSL_CACERT_BADFILE",
    97: "CURLE_PROXY",
}
_TIMED_OUT: Final = 28
_LOCAL_CODES: Final = frozenset({23, 27, 63, 77})
#: This machine ran out of something: descriptors, ports, buffers, memory.
_LOCAL_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


def diagnose(facts: CurlFacts) -> TransportFailure:
    """The failure that ``facts`` amount to. Pure."""
    phase = phase_of(facts)
    not_sent = facts.request_bytes == 0
    return TransportFailure(
        kind=_kind_of(facts, not_sent=not_sent),
        delivery=Delivery.NOT_SENT if not_sent else Delivery.POSSIBLY_DELIVERED,
        phase=phase,
        reason=f"{_words(facts)} ({phase})",
        error_name=_NAMES.get(facts.code, f"CURLE_{facts.code}"),
        elapsed_s=facts.elapsed_s,
    )


def phase_of(facts: CurlFacts) -> Phase:
    """The first step that was not completed."""
    if facts.request_bytes == 0:
        if facts.resolved_s == 0.0:
            return Phase.RESOLVING
        return Phase.SECURING if facts.connected_s > 0.0 and facts.is_tls else Phase.CONNECTING
    if facts.first_byte_s > 0.0:
        return Phase.READING
    return Phase.WAITING if facts.uploaded_bytes >= facts.body_size_bytes else Phase.SENDING


def _kind_of(facts: CurlFacts, *, not_sent: bool) -> FailureKind:
    if facts.code in _LOCAL_CODES or facts.os_errno in _LOCAL_ERRNOS:
        return FailureKind.TRANSPORT_LOCAL_RESOURCE
    if not_sent:
        return FailureKind.TRANSPORT_UNREACHABLE
    return FailureKind.TRANSPORT_TIMEOUT if facts.code == _TIMED_OUT else FailureKind.TRANSPORT_PEER_DROP


def _words(facts: CurlFacts) -> str:
    if facts.resend_refused:
        return "the connection was closed before any reply; the request was not sent a second time"
    if facts.os_errno in _LOCAL_ERRNOS:
        return f"{facts.message}: {os.strerror(facts.os_errno)} on this machine"
    return facts.message or _NAMES.get(facts.code, f"libcurl error {facts.code}")
