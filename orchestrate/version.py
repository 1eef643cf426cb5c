"""The version of this program, from its installed metadata; without them it is a working copy."""

from __future__ import annotations


def package_version() -> str:
    """For example ``0.1.0``."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 20 ms that --help does not need

    try:
        return version("gym-eval")
    except PackageNotFoundError:
        return "0+unknown"
