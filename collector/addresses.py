"""What an address must be before anybody is asked at it, and that nothing secret is written into one."""

from __future__ import annotations

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
