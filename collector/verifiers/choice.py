"""Grading of multiple choice: the letter that the answer settles on, against the letter of the row."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from collector.outcomes import Answer, Failure, Verdict
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.boxed import last_boxed
from collector.verifiers.rows import field_of

#: The choice stands at the end of an answer; what is further back is not looked at.
_TAIL: Final = 100_000
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Not inside a word; an apostrophe belongs to one ("A's").
_NO_WORD_AFTER: Final = "(?![\\w'\u2019])"
_NO_WORD_BEFORE: Final = "(?<![\\w'\u2019.])"


class MultipleChoiceSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: multiple_choice``."""

    #: The row's field with the right letter, the right option's text, or its index in a list of options.
    field: str = "expected_answer"
    #: The row's field with the options: an object (letter to text) or a list; rows without it have their options in the prompt.
    options_field: str = "options"
    #: What to do when no rule finds a stated choice: take the last letter that stands alone, or call it no answer.
    fallback: Literal["last_letter", "none"] = "last_letter"


class MultipleChoiceVerifier(Verifier[MultipleChoiceSettings]):
    """Reward 1 for the right letter, else 0; an answer without a choice is counted in ``no_answer``."""

    Settings = MultipleChoiceSettings

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError when the right choice is missing or is none of the options."""
        self._expected(row)

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Find the choice by the rules of ``extract_choice``."""
        options = options_of(row, self.settings.options_field)
        found = extract_choice(answer.text, options, last_letter=self.settings.fallback == "last_letter")
        extra = {"extracted_answer": found, "no_answer": int(found is None)}
        return Verdict(reward=float(found == self._expected(row)), extra=extra)

    def _expected(self, row: dict[str, Any]) -> str:
        value = field_of(row, self.settings.field)
        options = options_of(row, self.settings.options_field)
        is_index = (
            isinstance(value, int) and not isinstance(value, bool) and isinstance(row.get(self.settings.options_field), list)
        )
        if is_index and 0 <= value < len(options):
            return list(options)[value]
        text = value.strip() if isinstance(value, str) else ""
        letter = text.strip("().").upper()
        if letter in options:
            return letter
        by_text = _letters_of(text, options)
        if len(by_text) == 1:
            return by_text[0]
        raise ValueError(f"the row's field {self.settings.field!r} is none of the choices {', '.join(options)}")


def options_of(row: dict[str, Any], field: str) -> dict[str, str]:
    """Letter to text. A list gets the letters A, B, C, ...; a row without options may choose any letter.

    Raises ValueError for options of another form.
    """
    options = row.get(field)
    if options is None:
        return dict.fromkeys(_LETTERS, "")
    if isinstance(options, list) and 0 < len(options) <= len(_LETTERS):
        return {letter: str(option) for letter, option in zip(_LETTERS, options, strict=False)}
    if isinstance(options, dict) and options:
        named = {str(letter).strip().upper(): str(option) for letter, option in options.items()}
        if len(named) == len(options) and all(len(letter) == 1 and letter.isalnum() for letter in named):
            return named
    raise ValueError(f"the row's field {field!r} must be a list of up to 26 options or an object of single letters")


def extract_choice(text: str, options: dict[str, str], *, last_letter: bool = True) -> str | None:
    """The letter of ``options`` that ``text`` settles on; None when it settles on none.

    In this order: in a box, after "answer is" or its like, as the whole text or its first word ("B." or "B) Paris"), the
    text of one option and nothing else, in brackets, and, with ``last_letter``, the last letter that stands alone.
    """
    tail = text[-_TAIL:]
    boxed = last_boxed(tail)
    found = None if boxed is None else _whole(_unwrapped(boxed), options)
    found = found or _stated(tail, options) or _whole(tail, options) or _last(rf"[(\[]{_one(options)}[)\]]", tail)
    if found is None and last_letter:
        # "I think" and "A cat" begin with words that only look like letters.
        found = _last(rf"{_NO_WORD_BEFORE}(?!I['\u2019 ]|A [a-z]){_one(options)}{_NO_WORD_AFTER}", tail)
    return found


def _one(options: dict[str, str], *, small: bool = False) -> str:
    letters = "".join(options)
    return f"(?P<letter>[{re.escape(letters.lower() if small else letters)}])"


def _stated(text: str, options: dict[str, str]) -> str | None:
    verb = r"(?i:(?:is|are|would be|should be)\b)?"
    opening = r"[\s:=*_`(\[\\$\"'{]{0,8}"
    stated = rf"(?i:\b(?:answer|choice|option))\W{{0,4}}{verb}{opening}{_one(options)}{_NO_WORD_AFTER}(?! [a-z])"
    # "answer: b" states a choice; "the answer is a bit longer" does not: a small letter needs a colon before and nothing after.
    small = rf"(?i:\banswer)[*_]{{0,2}} ?[:=][\s*_(]{{0,4}}{_one(options, small=True)}[).*_]{{0,3}}[ \t]*(?:\n|$)"
    return _last(f"{stated}", text) or _last(small, text)


def _last(pattern: str, text: str) -> str | None:
    found = None
    for found in re.finditer(pattern, text):  # noqa: B007 - the last one stays
        pass
    return found["letter"].upper() if found else None


def _whole(text: str, options: dict[str, str]) -> str | None:
    stripped = text.strip()
    alone = re.match(rf"[\s*_`(\[]{{0,4}}(?i:{_one(options)})[\s*_`)\].:]{{0,4}}$", stripped)
    leading = re.match(rf"[*_`(\[]{{0,3}}{_one(options)}[*_`)\]]{{0,3}}[).:](?:\s|$)", stripped)
    found = alone or leading
    if found:
        return found["letter"].upper()
    same = _letters_of(stripped, options)
    return same[0] if len(same) == 1 else None


def _letters_of(text: str, options: dict[str, str]) -> list[str]:
    wanted = _plain(text)
    return [letter for letter, option in options.items() if option and _plain(option) == wanted]


def _unwrapped(boxed: str) -> str:
    inner = re.fullmatch(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}", boxed.strip())
    return inner[1] if inner else boxed


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .*_`\"'").casefold()
