"""JSON objects within running text: which value a key has in them, in time that grows with the text and no faster.

A parser that begins anew at every brace needs the square of a text's length for braces that nothing closes. Here the text is
gone over from its end: where a container that begins inside of another one ends, or that it is none, is known by then.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

_CONTAINERS: Final = re.compile(r"[{\[]")
_BLANK: Final = re.compile(r"[ \t\n\r]*+")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
#: What holds nothing else. Python's own parser takes the three words that JSON does not have.
_PLAIN: Final = re.compile(
    _STRING.pattern + r"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null|NaN|-?Infinity"
)


class _Span(NamedTuple):
    begin: int
    end: int


def value_in_text(text: str, key: str) -> str | None:
    """The value of ``key``, as it stands in ``text``, in the last JSON object that has it; None when no object does.

    Of objects within each other the outermost that has it counts, and of equal keys the last.
    """
    ends: dict[int, int] = {}
    found: _Span | None = None
    value: _Span | None = None
    for begin in reversed([match.start() for match in _CONTAINERS.finditer(text)]):
        if text[begin] == "[":
            end = _end_of(text, begin, ends)
        else:
            end, mine = _object_at(text, begin, key, ends)
            # One around the object that was found is the verdict, and what it holds are its parts.
            if mine is not None and (found is None or end > found.end):
                found, value = _Span(begin, end), mine
        if end > 0:
            ends[begin] = end
    return None if value is None else text[value.begin : value.end]


def _object_at(text: str, begin: int, key: str, ends: dict[int, int]) -> tuple[int, _Span | None]:
    """Where the object that begins at ``begin`` ends, 0 when it is none, and where in it the value of ``key`` stands."""
    value: _Span | None = None
    at = _after_blank(text, begin + 1)
    if text.startswith("}", at):
        return at + 1, None
    while (name := _STRING.match(text, at)) is not None:
        at = _after_blank(text, name.end())
        if not text.startswith(":", at):
            break
        at = _after_blank(text, at + 1)
        end = _value_end(text, at, ends)
        if not end:
            break
        if _is_key(name[0], key):
            value = _Span(at, end)
        at = _after_blank(text, end)
        if text.startswith("}", at):
            return at + 1, value
        if not text.startswith(",", at):
            break
        at = _after_blank(text, at + 1)
    return 0, None


def _end_of(text: str, begin: int, ends: dict[int, int]) -> int:
    """Where the array that begins at ``begin`` ends; 0 when it is none."""
    at = _after_blank(text, begin + 1)
    if text.startswith("]", at):
        return at + 1
    while end := _value_end(text, at, ends):
        at = _after_blank(text, end)
        if text.startswith("]", at):
            return at + 1
        if not text.startswith(",", at):
            break
        at = _after_blank(text, at + 1)
    return 0


def _value_end(text: str, at: int, ends: dict[int, int]) -> int:
    if text[at : at + 1] in {"{", "["}:
        return ends.get(at, 0)
    plain = _PLAIN.match(text, at)
    return 0 if plain is None else plain.end()


def _after_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


def _is_key(name: str, key: str) -> bool:
    return name[1:-1] == key if "\\" not in name else json.loads(name) == key
