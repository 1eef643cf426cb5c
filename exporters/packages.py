"""Packages that an exporter needs and a user may not have installed."""

from __future__ import annotations

from importlib.util import find_spec

from exporters.source import ExportError


def missing_package(package: str, extra: str) -> str | None:
    """What to do when ``package`` is not installed; None when it is."""
    return None if find_spec(package) else f"the package {package} is not installed: pip install 'gym-eval[{extra}]'"


def require_package(package: str, extra: str) -> None:
    """Raise ExportError with the command that installs ``package`` when it is not there."""
    if (missing := missing_package(package, extra)) is not None:
        raise ExportError(f"{missing}.")
