"""What a verifier reads from a row, with an error that names the field and its neighbours when it is not there."""

from __future__ import annotations

import difflib
from typing import Any


def field_of(row: dict[str, Any], name: str) -> Any:
    """The value of ``row[name]``. Raises ValueError naming ``name`` and the row's own fields when it is absent or null."""
    value = row.get(name)
    if value is None and name in row:
        raise ValueError(f"the row's field {name!r} is null")
    if value is None:
        fields = sorted(key for key in row if not key.startswith(("_ng_", "responses_create_params")))
        near = difflib.get_close_matches(name, fields, n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"the row has no field {name!r};{guess} its fields are: {', '.join(fields) or 'none'}")
    return value


def text_field_of(row: dict[str, Any], name: str) -> str:
    """The same as a text; a number is written as JSON writes it. Raises ValueError for a value that is neither."""
    value = field_of(row, name)
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"the row's field {name!r} must be a text or a number, not {type(value).__name__}")
