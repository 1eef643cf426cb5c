r"""What stands in the last ``\boxed{...}`` of an answer, braces balanced."""

from __future__ import annotations

from typing import Final

#: Characters; what is longer is no final answer.
_LONGEST: Final = 10_000
_MARK: Final = "\\boxed{"


def last_boxed(text: str) -> str | None:
    """The content of the last complete box; None when there is none. Linear in the length of the answer's tail."""
    start = text.rfind(_MARK)
    if start < 0:
        return None
    depth = 0
    begin = start + len(_MARK)
    for position in range(begin, min(len(text), begin + _LONGEST)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            if depth == 0:
                return text[begin:position]
            depth -= 1
    return None
