"""Addresses without what only their owner may see."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

MASK: Final = "**********"


def masked_address(text: str) -> str:
    """``text`` without what an address carries beside host and path: user and password, and the values of its query."""
    if "://" not in text or any(sign.isspace() for sign in text):
        return text
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return text
    if not host or not (parts.username or parts.password or parts.query):
        return text
    place = parts.netloc.rpartition("@")[2]
    login = f"{MASK}@" if "@" in parts.netloc else ""
    names = [pair.partition("=")[0] for pair in parts.query.split("&")] if parts.query else []
    query = "&".join(f"{name}={MASK}" for name in names)
    return parts._replace(netloc=f"{login}{place}", query=query).geturl()
