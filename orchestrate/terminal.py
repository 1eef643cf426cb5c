"""One line of a terminal, as wide as that is."""

from __future__ import annotations

import os
from typing import Final, TextIO

#: Where a terminal does not tell.
_COLUMNS: Final = 80
_CUT: Final = ".."


def fitting(text: str, stream: TextIO) -> str:
    """``text`` cut at its end to one line of the terminal that ``stream`` is."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        columns = _COLUMNS
    # In its last column many terminals begin the next line.
    room = max(len(_CUT), columns - 1)
    return text if len(text) <= room else text[: room - len(_CUT)] + _CUT
