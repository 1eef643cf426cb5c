"""What lines of NeMo Gym's own files say: result rows, failures and inventory rows, without a manifest to hold them against."""

from __future__ import annotations

import math
import os
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from collector import jsonl, rows
from collector.errors import CorruptArtifactError
from collector.outcome_checks import is_reward
from collector.outcomes import FailureClass

T = TypeVar("T")
_ADVICE: Final = "Restore the file, or leave it out."
#: Where a row names nobody.
NO_NAME: Final = -1


class AgentRef(msgspec.Struct, frozen=True):
    """Who answered."""

    name: str | None = None


class _Input(msgspec.Struct, frozen=True):
    input: msgspec.Raw = msgspec.Raw(b"")


class _Stamped(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollout a line is of. Without both numbers nobody can tell."""

    task: rows.TaskNumber = msgspec.field(name=rows.TASK_INDEX)
    repeat: rows.RepeatNumber = msgspec.field(name=rows.ROLLOUT_INDEX)
    agent_ref: AgentRef | None = None

    @property
    def agent(self) -> str | None:
        """The agent's name; files of a single agent may leave it out."""
        return self.agent_ref.name if self.agent_ref else None

    @property
    def key(self) -> int:
        return self.task << 32 | self.repeat


class ResultRow(_Stamped, frozen=True, kw_only=True):
    """What of a result row decides a count."""

    server: str | None = msgspec.field(name="_ng_environment_server", default=None)
    reward: float | int | None = None
    mask_sample: bool | None = None
    response: rows.SavedResponse | None = None

    def __post_init__(self) -> None:
        # A float that is none was refused by the decoder.
        if self.reward is not None and not is_reward(self.reward):
            raise ValueError("a reward that no float holds")

    @property
    def is_truncated(self) -> bool:
        return rows.SavedVerdict(response=self.response).is_truncated


class FailureRow(_Stamped, frozen=True, kw_only=True):
    """What of a failure row decides a count."""

    server: str | None = msgspec.field(name="_ng_environment_server", default=None)
    failure_class: str = msgspec.field(name=rows.FAILURE_CLASS)
    terminal: bool | None = msgspec.field(name="_ng_failure_terminal", default=None)
    kind: str | None = msgspec.field(name="failure_kind", default=None)

    @property
    def is_terminal(self) -> bool:
        return self.terminal is True or self.failure_class == FailureClass.PERMANENT


class InventoryRow(_Stamped, frozen=True, kw_only=True):
    """What of an inventory row tells whether two runs asked the same."""

    params: _Input | None = msgspec.field(name="responses_create_params", default=None)

    @property
    def question(self) -> bytes:
        return bytes(self.params.input) if self.params else b""


class _Line(NamedTuple):
    number: int
    offset: int
    data: bytes
    is_whole: bool


class Names:
    """Names by number: a million rows share some few."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int:
        """The number of ``name``, NO_NAME without one."""
        if name is None:
            return NO_NAME
        number = self._numbers.setdefault(name, len(self.all))
        if number == len(self.all):
            self.all.append(name)
        return number


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """The result rows of one file, in its order: row ``i`` is line ``i + 1``. About 60 bytes a row, whatever it weighs.

    ``lengths`` and ``checksums`` count a newline even where the file's last line has none. Agents and servers are names by
    number.
    """

    keys: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    checksums: array[int] = field(default_factory=lambda: array("q"))
    #: NaN where a row has none.
    rewards: array[float] = field(default_factory=lambda: array("d"))
    masked: bytearray = field(default_factory=bytearray)
    truncated: bytearray = field(default_factory=bytearray)
    agents: array[int] = field(default_factory=lambda: array("i"))
    servers: array[int] = field(default_factory=lambda: array("i"))

    def add(self, row: ResultRow, line: _Line, names: Names) -> None:
        """Take the row in ``line``."""
        self.keys.append(row.key)
        self.offsets.append(line.offset)
        self.lengths.append(len(line.data))
        self.checksums.append(zlib.crc32(line.data))
        self.rewards.append(math.nan if row.reward is None else float(row.reward))
        self.masked.append(row.mask_sample is True)
        self.truncated.append(row.is_truncated)
        self.agents.append(names.number(row.agent))
        self.servers.append(names.number(row.server))


@dataclass(frozen=True, slots=True)
class InventoryColumns:
    """The inventory rows of one file, in its order, and where each stands; their questions are read when they are needed."""

    keys: array[int] = field(default_factory=lambda: array("q"))
    agents: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))

    def add(self, row: InventoryRow, line: _Line, names: Names) -> None:
        """Take the row in ``line``."""
        self.keys.append(row.key)
        self.agents.append(names.number(row.agent))
        self.offsets.append(line.offset)
        self.lengths.append(len(line.data))


@dataclass(frozen=True, slots=True)
class LegacyFile:
    """One rollouts path with the companions that are there, read once. ``notes`` are for people."""

    path: Path
    #: Where the inventory is, if there is one.
    inventory_path: Path
    #: None: there is no inventory, so nobody knows what was expected.
    inventory: InventoryColumns | None
    #: Those that its columns count.
    names: Names = field(default_factory=Names)
    results: ResultColumns = field(default_factory=ResultColumns)
    failures: list[FailureRow] = field(default_factory=list[FailureRow])
    notes: list[str] = field(default_factory=list[str])


_results: Final = msgspec.json.Decoder(ResultRow)
_failures: Final = msgspec.json.Decoder(FailureRow)
_inventory: Final = msgspec.json.Decoder(InventoryRow)


def read_legacy_file(path: Path, failures: Path, inventory: Path) -> LegacyFile:
    """The three files as they are. Raises CorruptArtifactError for a line that is no row; a torn last one is passed over."""
    found = LegacyFile(path, inventory, InventoryColumns() if inventory.is_file() else None)
    for row, line in _rows_of(path, _results, "result", found.notes):
        found.results.add(row, line, found.names)
    if failures.is_file():
        found.failures.extend(row for row, _ in _rows_of(failures, _failures, "failure", found.notes))
    if found.inventory is not None:
        for row, line in _rows_of(inventory, _inventory, "inventory", found.notes):
            found.inventory.add(row, line, found.names)
    return found


def question_in(line: bytes) -> bytes:
    """The question of the inventory row in ``line``, which was read before."""
    return rows.parse_part(_inventory, line).question


def row_at(file: int, offset: int, length: int) -> bytes:
    """The row there in the open ``file``, newline included."""
    data = os.pread(file, length, offset)
    return data if data.endswith(b"\n") else data + b"\n"


def _rows_of(path: Path, decoder: msgspec.json.Decoder[T], what: str, notes: list[str]) -> Iterator[tuple[T, _Line]]:
    for line in _lines(path):
        try:
            yield rows.parse_part(decoder, line.data), line
        except ValueError as error:
            if not line.is_whole and _is_torn(line.data):
                notes.append(f"{path}:{line.number}: the last line is torn and was passed over.")
                return
            raise CorruptArtifactError(path, line.number, f"not a {what} row ({error}).", _ADVICE) from error


def _lines(path: Path) -> Iterator[_Line]:
    offset = 0
    with path.open("rb", buffering=1 << 20) as file:
        for number, data in enumerate(file, start=1):
            is_whole = data.endswith(b"\n")
            yield _Line(number, offset, data if is_whole else data + b"\n", is_whole)
            offset += len(data)


def _is_torn(data: bytes) -> bool:
    """Whether the text was cut short; whole JSON that only lacks its newline was not, and must be a row."""
    try:
        jsonl.loads(data)
    except ValueError:
        return True
    return False
