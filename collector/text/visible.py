"""Text of models, servers and files made harmless for a terminal or a page: nothing in it moves the cursor or hides."""

from __future__ import annotations

import unicodedata
from typing import Final

#: Cc: control, Cf: format (direction overrides, zero width), Cs: half of a character, Co and Cn: nobody knows; and the two
#: separators at which a line ends for some readers.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, *, kept: str = "") -> str:
    """``text`` with what would not be seen, or would reorder what is seen, written out as ``<U+001B>``; ``kept`` stays."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in kept or not _is_unseen(char) else f"<U+{ord(char):04X}>" for char in text)


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN
