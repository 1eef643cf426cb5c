"""What an address must be before anybody is asked at it, and that nothing secret is written into one."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit


def split_address(value: str) -> SplitResult:
    """The parts of an address. Raises ValueError, which never shows it: it may carry a key."""
    try:
        parts = urlsplit(value)
    except ValueError:
        raise ValueError("is not an http or https URL") from None
    try:
        # The only part that is checked no earlier than it is read.
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("its port is not a number from 1 to 65535")
    return parts


def check_secretless(value: str, instead: str) -> SplitResult:
    """The parts of an address that carries nothing secret; ``instead`` says where a key belongs. Raises ValueError."""
    parts = split_address(value)
    if "@" in parts.netloc or parts.query:
        raise ValueError(f"must not carry a user, a password or a query: {instead}")
    return parts


def check_http(value: str, instead: str, *, like: str = "http://host:8000/v1") -> str:
    """``value``, an http or https address of some host that carries nothing secret. Raises ValueError as above."""
    # urlsplit drops line breaks and tabs, and whoever asks at the address would not.
    if not value.isprintable() or " " in value:
        raise ValueError("has a space, a line break or another sign that no address has")
    parts = check_secretless(value, instead)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"is not an http or https URL: write it like {like}")
    return value


def is_loopback(value: str) -> bool:
    """Whether ``value`` is an http or https address of the machine that asks there, whichever that is."""
    try:
        parts = urlsplit(value)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    if parts.scheme not in {"http", "https"}:
        return False
    if host in {"localhost", "localhost.localdomain", "ip6-localhost"} or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        address = ip_address(host.partition("%")[0])
        address = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
        return address.is_loopback or address.is_unspecified
    # 127.1 and the like, as every resolver reads them.
    with suppress(OSError):
        return host[:1].isdigit() and ip_address(socket.inet_aton(host)).is_loopback
    return False
