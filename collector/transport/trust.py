"""Which certificates are trusted, and how a URL is named without what is secret in it."""

from __future__ import annotations

import contextlib
import ssl
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

#: Where distributions keep the trusted certificates; the wheel of pycurl knows only the path of its build machine.
_CA_FILES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@cache
def ca_file(chosen: str | None = None) -> str | None:
    """The file of trusted certificates: ``chosen``, else Python's own choice, else a distribution's; None if there is none."""
    candidates = [chosen, ssl.get_default_verify_paths().cafile, *_CA_FILES]
    return next((name for name in candidates if name and Path(name).is_file()), None)


def without_credentials(url: str) -> str:
    """``url`` without a user name, password or query: fit for a message."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return "the URL"
