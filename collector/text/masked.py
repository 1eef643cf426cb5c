"""Addresses, and texts that may quote them, without what only their owner may see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

MASK: Final = "**********"
_CREDENTIAL: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH")
_SHORTEST: Final = 4


def is_credential(name: str) -> bool:
    """Whether a variable or a parameter of this name holds what only its owner may see."""
    return _CREDENTIAL.search(name.upper()) is not None


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


def without_secrets(text: str, address: str | None, environ: Mapping[str, str]) -> str:
    """``text`` of somebody else's program or server, which may quote what it was given.

    Masked are ``address`` as a whole and what it holds beside host and path, as it stands and decoded, and the values of
    variables that are credentials by their name: here a value too much does no harm, one too few does.
    """
    if address is not None:
        text = text.replace(address, masked_address(address))
    secrets = {value for name, value in environ.items() if is_credential(name)}
    secrets.update(_secrets_of(address or ""))
    found = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe=""))}
    # The longest first: one may be a part of another. A very short one is a part of everything.
    for secret in sorted(found, key=len, reverse=True):
        text = text.replace(secret, MASK) if len(secret) >= _SHORTEST else text
    return text


def _secrets_of(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
    except ValueError:
        return
    # A user alone is a token, with a password a name: neither is shown.
    yield from filter(None, (parts.username, parts.password))
    for pair in parts.query.split("&"):
        yield pair.partition("=")[2]
