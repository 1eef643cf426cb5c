"""JSON of people and models, line by line, without changing what it says.

orjson is used where it is exact. It turns integers beyond 64 bits into floats, writes NaN as null and refuses lone
surrogates, so those inputs take the slower standard library. Lines end at LF only: U+2028 and its kin are text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson

#: Nineteen digits or more may not fit 64 bits: the exact parser decides.
_LONG_INTEGER = b"0" * 19
_POINT = ord(".")
#: Makes every digit a zero: with it a search costs a tenth of what a regular expression does.
_DIGITS_ALIKE = bytes.maketrans(b"0123456789", b"0" * 10)
#: Deeper JSON is refused: orjson writes no more levels, and a parser of the standard library may stop at any further one.
MOST_LEVELS: Final = 254
_TOO_DEEP = f"nested deeper than {MOST_LEVELS} levels"
_ALWAYS_FINITE = frozenset({str, int, bool, type(None)})
_CONTAINERS = (dict, list, tuple)
_BOM = b"\xef\xbb\xbf"


def loads(data: bytes) -> Any:
    """The value that ``data`` says. Raises ValueError for anything that is not strict JSON in UTF-8, NaN included."""
    if not _may_hold_long_integer(data):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if b"\\ud" not in data.lower() and "recursion" not in str(error):
                raise
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(value)
    return value


def _may_hold_long_integer(data: bytes) -> bool:
    alike = data.translate(_DIGITS_ALIKE)
    place = alike.find(_LONG_INTEGER)
    # The digits of a fraction are no integer, and a file of figures is full of long ones.
    while place > 0 and alike[place - 1] == _POINT:
        place = alike.find(_LONG_INTEGER, place + len(_LONG_INTEGER))
    return place >= 0


def dumps(value: Any) -> bytes:
    """Compact JSON of ``value``, without a newline. Raises ValueError for NaN and infinity, TypeError for foreign types."""
    try:
        data = orjson.dumps(value)
    except TypeError:
        return _dumps_exact(value)
    # orjson writes NaN and infinity as null; a null is common, so only then is the value looked at again.
    if b"null" in data and _has_non_finite(value):
        raise ValueError("a number is not finite and JSON has no word for it")
    return data


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted keys: equal values give equal bytes, whatever order they were written in."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        _check_depth(value)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each line of ``path`` with its number from 1, without LF, CR or a leading byte order mark; blank lines are skipped."""
    with path.open("rb", buffering=1 << 20) as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            line = line.rstrip(b"\r\n")
            if line.strip():
                yield number, line


def _dumps_exact(value: Any) -> bytes:
    _check_depth(value)
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _check_depth(value: Any) -> None:
    """Raise ValueError beyond MOST_LEVELS, whatever stack the caller stands on: what one place writes, every other can read."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _parts(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list | tuple) else ()


def _has_non_finite(value: Any) -> bool:
    parts: list[Any] = [(value,)]
    # It grows while it is gone through.
    for part in parts:
        for item in part.values() if isinstance(part, dict) else part:
            # Nearly everything is of a kind that can be passed over without a question.
            if type(item) in _ALWAYS_FINITE:
                continue
            if isinstance(item, float):
                if item - item != 0.0:
                    return True
            elif item and isinstance(item, _CONTAINERS):
                parts.append(item)
    return False


def escaped(text: str) -> str:
    """``text`` as UTF-8 can hold it: a lone surrogate is written as the escape that JSON has for it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def require_utf8(value: Any) -> None:
    """Raise ValueError when a text in ``value`` holds a lone surrogate, which JSON can say and no UTF-8 can."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("a lone surrogate, which is no UTF-8") from error


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is infinity as a float")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
