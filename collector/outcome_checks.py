"""What a plug-in gives is looked at where it is made: its mistake has to show there, not in the journal. Pure.

Every attempt comes through here several times, so what is right is told by one question a value.
"""

from __future__ import annotations

import math
from typing import Final

#: Keys of a saved row that only its outcome sets; a dataset's keys of these names are not copied into saved rows.
RESULT_KEYS: Final = frozenset({"response", "reward", "mask_sample", "failure_kind", "failure_reason", "execute_only"})
_NUMBERS: Final = (int, float)


def require(what: str, name: str, value: object, kind: type) -> None:
    """Raise TypeError unless ``value``, which is called ``name`` in a ``what``, is a ``kind``."""
    if not isinstance(value, kind):
        raise TypeError(f"{what}.{name} is {type(value).__name__}, not {kind.__name__}")


def require_text_or_none(what: str, name: str, value: object) -> None:
    """Raise TypeError unless ``value``, which is called ``name`` in a ``what``, is a text or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{what}.{name} is {type(value).__name__}, not str | None")


def require_open_keys(what: str, extra: object) -> None:
    """Raise TypeError unless ``extra`` is a dict, ValueError when a key of it is reserved."""
    if not isinstance(extra, dict):
        require(what.capitalize(), "extra", extra, dict)
    elif any(map(is_reserved, extra)):
        bad = sorted(str(key) for key in extra if is_reserved(key))
        raise ValueError(f"keys of a {what} that are reserved: {', '.join(bad)}")


def is_reserved(key: object) -> bool:
    """Whether ``key`` can be no key of a verdict's extras: a result's own, an identity stamp, or no string at all."""
    return not isinstance(key, str) or key in RESULT_KEYS or key.startswith("_ng_")


def is_reward(value: object) -> bool:
    """Whether ``value`` can be a score: a finite int or float. A bool, a string, NaN and infinity are not."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def shown(value: object) -> str:
    """The beginning of how Python writes ``value``; its type where Python refuses (an integer of thousands of digits)."""
    try:
        return repr(value)[:80]
    except Exception:  # noqa: BLE001 - of a plug-in's own type it runs the plug-in's own code
        return f"a value of type {type(value).__name__}"


def told(error: BaseException) -> str:
    """The type of ``error`` and its text; the type alone where its text raises, too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception whose text raises is still the plug-in's bug, not the run's end
        return type(error).__name__


def utf8(text: str | None, limit: int) -> str | None:
    """At most ``limit`` characters of ``text``, lone surrogates replaced."""
    if text is None or (text.isascii() and len(text) <= limit):
        return text
    return text[:limit].encode("utf-8", "replace").decode()
