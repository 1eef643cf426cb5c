"""The version of this program as people are told it."""

from __future__ import annotations

from collector.version import installed_version


def package_version() -> str:
    """For example ``0.1.0``."""
    return installed_version() or "0+unknown"
