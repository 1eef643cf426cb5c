"""Grading by number: the last number of the answer, or the one after a marker, against a number of the row."""

from __future__ import annotations

import decimal
import re
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import Field

from collector.outcomes import Answer, Failure, Verdict
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.boxed import last_boxed
from collector.verifiers.rows import field_of

_WRITTEN_NUMBERS: Final = (int, float, str)
#: The final number stands at the end; what is further back is not looked at, so a long answer costs no more than a short one.
_TAIL: Final = 100_000
#: Digits read and compared. Any number longer than this in an answer is noise.
_MAX_DIGITS: Final = 400

_DIGITS: Final = r"(?:\d{1,3}(?:[,\u00a0\u202f ]\d{3})+(?!\d)|\d+)"
_PLAIN: Final = rf"(?:{_DIGITS}(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{{1,6}})?"
_SIGN: Final = r"(?:(?<![\w)\]}])[-+\u2212\u2012\u2013])?"
_CURRENCY: Final = r"[$€£¥]"
_NUMBER: Final = re.compile(
    rf"(?P<sign>{_SIGN})[ ]?\\?{_CURRENCY}?(?P<inner>{_SIGN})"
    rf"(?:\\d?frac\{{(?P<top>{_PLAIN})\}}\{{(?P<bottom>{_PLAIN})\}}|(?P<first>{_PLAIN})(?:[ ]?/[ ]?(?P<second>{_PLAIN}))?)"
    rf"(?P<percent>[ ]?\\?%)?",
    re.ASCII,
)  # fmt: skip
#: Every character that can be part of a number: between two others no number can be.
_MAY_BELONG: Final = frozenset("0123456789,.\u00a0\u202f +-\u2212\u2012\u2013\\$€£¥/%{}eEdfrac")
_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789", b"0" * 9)
_SEPARATORS: Final = dict.fromkeys(map(ord, ",\u00a0\u202f "))
_ONE: Final = Decimal(1)
_CONTEXT: Final = decimal.Context(prec=_MAX_DIGITS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NumberSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: number``."""

    field: str = "expected_answer"
    #: Look behind the last of these texts first, in this order; without one, the last number of the answer counts.
    markers: tuple[str, ...] = ("####",)
    #: Look into the last ``\\boxed{}`` before anything else.
    boxed: bool = True
    #: Equal when the difference is at most ``abs_tol``, or at most ``rel_tol`` times the expected magnitude.
    abs_tol: NonNegative = 0.0
    rel_tol: NonNegative = 0.0
    #: Read ``5%`` as 0.05 on both sides; otherwise the sign is ignored.
    percent_as_fraction: bool = False


class NumberVerifier(Verifier[NumberSettings]):
    """Reward 1 when the number in the answer equals the expected one, else 0; no number is a wrong answer."""

    Settings = NumberSettings

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError when the row has no expected number."""
        self._expected(row)

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Compare exactly in decimals; binary rounding never decides."""
        expected = self._expected(row)
        found = self.extract(answer.text)
        if found is None:
            return Verdict(reward=0.0, extra={"extracted_answer": None, "no_answer": 1})
        reward = float(self._equal(found, expected))
        return Verdict(reward=reward, extra={"extracted_answer": _written(found), "no_answer": 0})

    def extract(self, text: str) -> Decimal | None:
        """The number that the answer ends in, by the rules of the settings; None when there is none."""
        percent = self.settings.percent_as_fraction
        tail = text[-_TAIL:]
        boxed = last_boxed(tail) if self.settings.boxed else None
        if boxed is not None and (found := last_number(boxed, percent_as_fraction=percent)) is not None:
            return found
        for marker in self.settings.markers:
            _, there, after = tail.rpartition(marker)
            if there and (found := first_number(after, percent_as_fraction=percent)) is not None:
                return found
        return last_number(tail, percent_as_fraction=percent)

    def _expected(self, row: dict[str, Any]) -> Decimal:
        value = field_of(row, self.settings.field)
        text = str(value) if isinstance(value, _WRITTEN_NUMBERS) and not isinstance(value, bool) else ""
        found = _known_number(text, self.settings.percent_as_fraction)
        if found is None:
            raise ValueError(f"the row's field {self.settings.field!r} holds no number")
        return found

    def _equal(self, found: Decimal, expected: Decimal) -> bool:
        if found == expected:
            return True
        absolute, relative = (Decimal(repr(tolerance)) for tolerance in (self.settings.abs_tol, self.settings.rel_tol))
        allowed = max(absolute, _CONTEXT.multiply(relative, _CONTEXT.abs(expected)))
        return bool(_CONTEXT.abs(_CONTEXT.subtract(found, expected)) <= allowed)


def last_number(text: str, *, percent_as_fraction: bool = False) -> Decimal | None:
    """The last readable number in ``text``."""
    end = len(text)
    # The pattern costs much at every character: only stretches of what a number may hold are given to it, from the end.
    while (digit := _last_digit(text, end)) >= 0:
        begin = stop = digit + 1
        while begin and text[begin - 1] in _MAY_BELONG:
            begin -= 1
        while stop < end and text[stop] in _MAY_BELONG:
            stop += 1
        if (plain := text[begin:stop].strip(" ").rstrip(" .,")).isdigit():
            # A whole number with nothing about it, as most answers are: the pattern would find the same.
            if (value := _decimal(plain)) is not None:
                return value
            end = begin
            continue
        for match in reversed(list(_NUMBER.finditer(text, begin, stop))):
            value = _value(match, percent_as_fraction=percent_as_fraction)
            if value is not None:
                return value
        end = begin
    return None


@lru_cache(maxsize=1024)
def _known_number(text: str, percent_as_fraction: bool) -> Decimal | None:
    """``last_number`` of an expected answer, which comes again with each repeat."""
    return last_number(text, percent_as_fraction=percent_as_fraction)


def _last_digit(text: str, end: int) -> int:
    """Where the last digit before ``end`` stands; -1 without one. Costs what lies behind it, at the speed of memory."""
    window = 256
    while end > 0:
        begin = max(0, end - window)
        # Byte for character, so that places agree; one search for all digits.
        place = text[begin:end].encode("ascii", "replace").translate(_DIGITS_ALIKE).rfind(b"0")
        if place >= 0:
            return begin + place
        end, window = begin, 8 * window
    return -1


def first_number(text: str, *, percent_as_fraction: bool = False) -> Decimal | None:
    """The first readable number in ``text``."""
    for match in _NUMBER.finditer(text):
        value = _value(match, percent_as_fraction=percent_as_fraction)
        if value is not None:
            return value
    return None


def _value(match: re.Match[str], *, percent_as_fraction: bool) -> Decimal | None:
    top = _decimal(match["top"] or match["first"])
    below = match["bottom"] or match["second"]
    bottom = _ONE if below is None else _decimal(below)
    if top is None or bottom is None or bottom == 0:
        return None
    value = top if bottom is _ONE else _CONTEXT.divide(top, bottom)
    if percent_as_fraction and match["percent"]:
        value = _CONTEXT.divide(value, Decimal(100))
    negative = (match["sign"] + match["inner"]).strip() not in ("", "+")
    return value.copy_negate() if negative else value


def _decimal(text: str) -> Decimal | None:
    digits = text.translate(_SEPARATORS)
    if len(digits) > _MAX_DIGITS:
        return None
    value = _CONTEXT.create_decimal(digits)
    return value if value.is_finite() else None


def _written(value: Decimal) -> str:
    # Trailing zeros say nothing: 5.0 and 5 are one answer. Huge exponents stay exponents.
    value = _CONTEXT.normalize(value)
    return f"{value:f}" if -30 < value.adjusted() < 30 else str(value)
