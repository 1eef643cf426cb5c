"""How two experiments differ, setting by setting, in the order in which a reader should look. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from collector import jsonl

#: Characters shown of one value.
_SHOWN: Final = 80
#: The key that says which other keys its section has.
_TYPE: Final = "type"


class Difference(NamedTuple):
    """One setting, by its dotted key, with both values; None is absent."""

    key: str
    saved: Any
    wanted: Any

    @property
    def shown(self) -> str:
        """``num_repeats: saved 1, now 2``."""
        return f"{self.key}: saved {short(self.saved)}, now {short(self.wanted)}"


def differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Difference]:
    """Every setting that differs, another kind of plug-in first.

    Of a section of another type only the type is told: its other keys are that type's own, mostly defaults that nobody wrote.
    """
    old, new = (flatten(side) if side else {} for side in (saved, wanted))
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key) and not _is_filled(key, old, new)]
    types = [key for key in keys if key.rpartition(".")[2] == _TYPE]
    retyped = tuple(key.removesuffix(_TYPE) for key in types)
    others = [key for key in keys if not key.startswith(retyped)] if retyped else keys
    return [Difference(key, old.get(key), new.get(key)) for key in [*types, *others]]


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested objects as ``a.b.c`` keys; lists and scalars are leaves."""
    if isinstance(value, dict) and value:
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat.update(flatten(item, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    return {prefix: value}


def short(value: Any) -> str:
    """``value`` as JSON of at most eighty characters; ``nothing`` for None."""
    text = "nothing" if value is None else jsonl.dumps(value).decode(errors="replace")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _is_filled(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether one side has an empty section ``key`` and the other one's entries are told by themselves."""
    entries = [value for side in (old, new) for name, value in side.items() if name.startswith(f"{key}.")]
    return {} in (old.get(key), new.get(key)) and any(value is not None for value in entries)
