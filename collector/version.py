"""The version of this program, from the metadata of its installed distribution."""

from __future__ import annotations


def installed_version() -> str | None:
    """For example ``0.1.0``; None for a working copy that nobody installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 20 ms that --help does not need

    try:
        return version("gym-eval")
    except PackageNotFoundError:
        return None
