"""How a row becomes a trajectory: a profile for each kind of evidence a row may hold, chosen by what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from exporters.atif.documents import SCHEMA_VERSION, Document, SchemaVersion
from exporters.strict_rows import RowError

#: The row's own record of its conversation, written where model calls are observed.
TRAJECTORY: Final = "ng_trajectory"
#: What a value of another kind than the format has (a list for a role) ends a mapping with: that row is refused, and named.
_UNFIT: Final = (ValueError, TypeError, LookupError, AttributeError)


class Choice(StrEnum):
    """Which mapping is used."""

    #: Strict for a row with its own observation, lossy for one that has only a response.
    AUTO = "auto"
    STRICT = "strict"
    LOSSY = "lossy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a trajectory says beside its row."""

    session_id: str
    agent_name: str
    agent_version: str
    exporter_version: str
    profile: Choice = Choice.AUTO
    schema_version: SchemaVersion = SCHEMA_VERSION


class Profile(Protocol):
    """One mapping, with a name that is written into each document made by it."""

    name: str
    #: What a row must have.
    reads: str

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether the row holds what this mapping reads."""
        ...

    def convert(self, row: Mapping[str, Any], context: Context) -> Document:
        """The trajectory of an accepted row. Raises RowError."""
        ...


def checked(document: Callable[[], Document]) -> Document:
    """What ``document`` makes of a row, as the format wants it. Raises RowError for whatever keeps it from that."""
    try:
        made = document()
        made.check()
    except RowError:
        raise
    except _UNFIT as error:
        raise RowError(f"not a valid trajectory ({error})") from error
    return made


def choose(profiles: tuple[Profile, ...], row: Mapping[str, Any]) -> Profile:
    """The first profile that accepts ``row``. Raises RowError when none does."""
    for profile in profiles:
        if profile.accepts(row):
            return profile
    what = " or ".join(dict.fromkeys(profile.reads for profile in profiles))
    raise RowError(f"the row has no {what}: there is nothing to make a trajectory of")
