"""Grading by text: equality with a field of the row, or a regular expression that the answer must match."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from collector.outcomes import Answer, Failure, Verdict
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.patterns import How, compile_pattern, find, search_pool
from collector.verifiers.rows import field_of, text_field_of


class ExactMatchSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: exact_match``."""

    #: The row's field with the expected answer: a text, a number, or a list of which any one counts.
    field: str = "expected_answer"
    strip: bool = True
    ignore_case: bool = False
    #: ``whitespace``: runs of white space count as one space.
    normalize: Literal["none", "whitespace"] = "none"
    #: Take the last match (its first group, if it has one) out of the answer and compare that.
    extract: str | None = None

    @field_validator("extract")
    @classmethod
    def _is_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            compile_pattern(value)
        return value


class ExactMatchVerifier(Verifier[ExactMatchSettings]):
    """Reward 1 when the answer, or what is extracted from it, equals an expected answer; else 0."""

    Settings = ExactMatchSettings

    async def __aenter__(self) -> Self:
        self._pool = await search_pool().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.__aexit__(*exc)

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError when the expected answer is missing or is no text."""
        self._expected(row)

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Compare after the normalizations that the settings ask for."""
        text: str | Failure | None = answer.text
        if self.settings.extract is not None:
            text = await find(self._pool, self.settings.extract, answer.text, How.LAST)
        if isinstance(text, Failure):
            return text
        found = None if text is None else self._normal(text)
        is_equal = found is not None and found in {self._normal(expected) for expected in self._expected(row)}
        extra = {"extracted_answer": text} if self.settings.extract is not None else {}
        return Verdict(reward=float(is_equal), extra=extra)

    def _expected(self, row: dict[str, Any]) -> list[str]:
        value = field_of(row, self.settings.field)
        if isinstance(value, list):
            if not value:
                raise ValueError(f"the row's field {self.settings.field!r} is an empty list")
            return [text_field_of({self.settings.field: item}, self.settings.field) for item in value]
        return [text_field_of(row, self.settings.field)]

    def _normal(self, text: str) -> str:
        if self.settings.normalize == "whitespace":
            text = " ".join(text.split())
        if self.settings.strip:
            text = text.strip()
        return text.casefold() if self.settings.ignore_case else text


class RegexSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: regex``; exactly one of ``pattern`` and ``field``."""

    pattern: str | None = None
    #: The row's field with the pattern.
    field: str | None = None
    #: The whole answer, without surrounding white space, must match.
    full_match: bool = False
    ignore_case: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.pattern is None) == (self.field is None):
            raise ValueError("give exactly one of pattern and field")
        if self.pattern is not None:
            compile_pattern(self.pattern)
        return self


class RegexVerifier(Verifier[RegexSettings]):
    """Reward 1 when the pattern matches the answer, else 0; a search that does not end is a failure and no score."""

    Settings = RegexSettings

    async def __aenter__(self) -> Self:
        self._pool = await search_pool().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.__aexit__(*exc)

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError when the row's pattern is missing or cannot be compiled."""
        compile_pattern(self._pattern(row))

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Search in a worker process."""
        how, text = (How.FULL, answer.text.strip()) if self.settings.full_match else (How.FIRST, answer.text)
        flags = re.IGNORECASE if self.settings.ignore_case else 0
        found = await find(self._pool, self._pattern(row), text, how, flags=flags)
        if isinstance(found, Failure):
            return found
        return Verdict(reward=float(found is not None), extra={"extracted_answer": found})

    def _pattern(self, row: dict[str, Any]) -> str:
        if self.settings.pattern is not None:
            return self.settings.pattern
        return text_field_of(row, self.settings.field or "")
