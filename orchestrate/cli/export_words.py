"""What the words of ``gym eval export`` mean: an exporter, a run, and settings of the exporter.

Order of what decides a setting: flags first, then overrides as they were written, so that an override wins over a flag
wherever it stands on the command line. Overrides keep Hydra's meaning; values of flags are taken as they are, to the byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class Words(NamedTuple):
    """The words of the command line: an exporter, a run and overrides, each of them or not, in this order."""

    exporter: str | None
    run: str | None
    overrides: list[str]


def split_tokens(tokens: list[str]) -> Words:
    """What each word is. A first word that names no exporter names a run if there is such a one.

    EXPORTER may be left out, so the first token may be an override; it stays the first of them.
    """
    names = list(tokens)
    exporter = names.pop(0) if names and not _is_override(names[0]) and not _is_run(names[0]) else None
    # A path with = in it is a run when something lies there.
    run = names.pop(0) if names and (not _is_override(names[0]) or Path(names[0]).exists()) else None
    return Words(exporter, run, names)


def _is_override(token: str) -> bool:
    return token.startswith(("+", "~")) or "=" in token


def _is_run(token: str) -> bool:
    """Whether a word that could name an exporter names a run instead."""
    from collector.errors import NotFoundError
    from exporters.registry import EXPORTERS
    from orchestrate.named import named

    if token in EXPORTERS.names():
        return False
    if "/" in token:
        return True
    try:
        found = named(token)
    except NotFoundError:
        return False
    return found.run is not None or found.rollouts is not None


def compose_settings(flags: dict[str, str | None], overrides: list[str]) -> dict[str, Any]:
    """The settings that flags and overrides give. Raises ConfigError with Hydra's own hint for an override it refuses."""
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    if not overrides:
        return given
    import secrets

    from orchestrate.config.compose import compose_data

    # Hydra would read ${...} and ??? in a value; a stand-in that nobody can have written keeps it out of its sight.
    nonce = secrets.token_hex(8)
    stand_ins = {f"flag-{nonce}-{index}-": value for index, value in enumerate(given.values())}
    data = dict(zip(given, stand_ins, strict=True))
    composed = compose_data(data, overrides, folder=Path.cwd(), where="")
    return {key: _restored(value, stand_ins) for key, value in composed.items()}


def _restored(value: Any, stand_ins: dict[str, str]) -> Any:
    if isinstance(value, str):
        for stand_in, text in stand_ins.items():
            value = value.replace(stand_in, text)
        return value
    if isinstance(value, dict):
        return {key: _restored(item, stand_ins) for key, item in value.items()}
    return [_restored(item, stand_ins) for item in value] if isinstance(value, list) else value
