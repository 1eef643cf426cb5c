"""Text of models and servers made harmless for a page: short, without control characters, its direction no secret."""

from __future__ import annotations

import unicodedata
from typing import Final

#: Characters shown of one text; a page must stay readable whatever a model wrote.
LIMIT: Final = 600
#: Characters looked at; the rest of a huge text is only counted.
_LOOKED_AT: Final = LIMIT * 2


def plain(value: object, limit: int = LIMIT) -> str:
    """At most ``limit`` characters of ``value``. What would not be seen, or would reorder what is seen, is written out."""
    text = value if isinstance(value, str) else str(value)
    shown = "".join(map(_visible, text[:_LOOKED_AT]))[:limit]
    return shown if len(shown) <= limit and len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def _visible(char: str) -> str:
    if char in "\n\t" or (char.isascii() and char.isprintable()):
        return char
    # Cc: control, Cf: format (direction overrides, zero width), Cs: half of a character, Co and Cn: nobody knows.
    category = unicodedata.category(char)
    return f"<U+{ord(char):04X}>" if category in {"Cc", "Cf", "Cs", "Co", "Cn"} else char
