"""Text of models and servers made harmless for a page: short, without control characters, its direction no secret."""

from __future__ import annotations

from typing import Final

from collector.text.visible import visible

#: Characters shown of one text; a page must stay readable whatever a model wrote.
LIMIT: Final = 600
#: Characters looked at; the rest of a huge text is only counted.
_LOOKED_AT: Final = LIMIT * 2


def plain(value: object, limit: int = LIMIT) -> str:
    """At most ``limit`` characters of ``value``. What would not be seen, or would reorder what is seen, is written out."""
    text = value if isinstance(value, str) else str(value)
    shown = visible(text[:_LOOKED_AT], kept="\n\t")[:limit]
    return shown if len(shown) <= limit and len(text) <= limit else f"{shown}… ({len(text):,} characters)"
