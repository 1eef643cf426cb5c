"""What a report keeps of its rows, as columns: some tens of bytes a row, whatever it weighs, and more only for findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import product, starmap
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import orjson

from merge.health.checks import Verdict, verdict_of
from merge.health.rules import Finding

#: How a row names its task, repeat or stage.
Name: TypeAlias = int | str
#: Numbers from here on are kept as text: 64 bits hold every other one, and a greater one that stands for none.
NUMBER_LIMIT: Final = 1 << 62


class Kind(NamedTuple):
    """What tasks and counts ask about a row."""

    verdict: Verdict
    is_readable: bool
    #: Whether every call of the agent's turns is known, and whether one of them succeeded.
    is_policy_observed: bool
    has_success: bool


#: Every kind of row; a row has the number of its own. A byte each, they are counted and compared by the thousand.
KINDS: Final = tuple(starmap(Kind, product(Verdict, *[(False, True)] * 3)))
_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}


def number_of(kind: Kind) -> int:
    """The position of ``kind`` in KINDS."""
    return _NUMBERS[kind]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What all checks of one row came to. Rows with the same one share it."""

    #: The findings as the report has them: JSON objects with commas between them.
    findings: bytes
    #: Bit set of the checks that could not be evaluated.
    unobserved: int
    #: Number of its kind.
    kind: int

    def with_finding(self, finding: Finding) -> Outcome:
        """The outcome of a row with one finding more."""
        found = encode_finding(finding)
        kind = KINDS[self.kind]._replace(verdict=Verdict.UNHEALTHY)
        return Outcome(b"%b,%b" % (self.findings, found) if self.findings else found, self.unobserved, number_of(kind))


@dataclass(slots=True)
class Table:
    """Digests of rows by column, all of the same length. None: the row does not say, or cannot be read."""

    tasks: list[Name | None] = field(default_factory=list[Name | None])
    repeats: list[Name | None] = field(default_factory=list[Name | None])
    stages: list[Name | None] = field(default_factory=list[Name | None])
    rollout_ids: list[str | None] = field(default_factory=list[str | None])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def __len__(self) -> int:
        return len(self.outcomes)

    def extend(self, other: Table) -> None:
        """Put the rows of ``other`` behind these."""
        for column in fields(self):
            getattr(self, column.name).extend(getattr(other, column.name))

    def arrange(self, order: Sequence[int]) -> None:
        """Put the row at each position of ``order`` in its place."""
        for column in fields(self):
            values: list[Any] = getattr(self, column.name)
            values[:] = [values[i] for i in order]

    def kinds(self) -> bytes:
        """The number of each row's kind."""
        return bytes(outcome.kind for outcome in self.outcomes)


def outcome_of(
    findings: Sequence[Finding],
    unobserved: int,
    *,
    is_readable: bool = True,
    is_policy_observed: bool = False,
    has_success: bool = False,
) -> Outcome:
    """The outcome of a row with these ``findings`` and this bit set of checks without evidence."""
    kind = Kind(verdict_of(len(findings), unobserved), is_readable, is_policy_observed, has_success)
    return Outcome(b",".join(map(encode_finding, findings)), unobserved, number_of(kind))


def encode_finding(finding: Finding) -> bytes:
    """``finding`` as the report has it."""
    locator = {"locator": finding.locator} if finding.locator else {}
    return orjson.dumps({"check": finding.check, **locator, "detail": finding.detail})
