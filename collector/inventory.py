"""The frozen list of all rollouts of a run: made from a dataset, written once, read by offset."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from collector import jsonl, rows
from collector.agents.base import AGENTS, RowMaker
from collector.errors import ConfigError, CorruptArtifactError, DatasetError, NoTasksError, NotFoundError
from collector.prompt import load_prompt, messages_of, seeded
from collector.settings import PromptConfig, RunSettings

#: Bytes read at once when a file of lines is scanned; a few copies of a block exist at a time.
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Materialized:
    """An inventory in memory, in (task, repeat) order: one encoded line for each rollout, and what binds it to its source."""

    lines: list[bytes]
    source_digest: str

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes, in hex."""
        return digest_of_lines(self.lines)


def digest_of_lines(lines: Sequence[bytes]) -> str:
    """SHA-256 over the concatenation of ``lines``, in hex."""
    hasher = hashlib.sha256()
    for line in lines:
        hasher.update(line)
    return hasher.hexdigest()


def materialize(settings: RunSettings) -> Materialized:
    """Every rollout that ``settings`` asks for. Reads the dataset, writes nothing.

    Identical input lines are one task, repeated; repeats of a task are adjacent. Raises DatasetError with file and line.
    """
    path = settings.input_jsonl_fpath
    hasher = hashlib.sha256()
    maker = AGENTS.load(settings.agent["type"]).row_maker(settings)
    lines = _made_lines(settings, maker, hasher) if maker else _repeated_lines(settings, hasher)
    if not lines:
        raise NoTasksError("the dataset has no rows.", "Nothing can be evaluated.", path)
    return Materialized(lines, hasher.hexdigest())


def _made_lines(settings: RunSettings, maker: RowMaker, hasher: Any) -> list[bytes]:
    """The rows that the agent makes of the dataset's, in (task, repeat) order."""
    path = maker.source(settings.input_jsonl_fpath)
    made: list[tuple[int, int, bytes]] = []
    for number, line in islice(_dataset_lines(path), settings.limit):
        hasher.update(line + b"\n")
        where = f"{path}:{number}"
        try:
            for task, repeat, row in maker.rows_of(line, _object_in(line, where)):
                made.append((task, repeat, rows.inventory_line(row, task, repeat)))
        except ValueError as error:
            raise DatasetError(f"{error}.", "Change the row, or the settings of the agent.", where) from error
    maker.finish(path)
    made.sort()
    return [line for _, _, line in made]


def _repeated_lines(settings: RunSettings, hasher: Any) -> list[bytes]:
    path, repeats = settings.input_jsonl_fpath, settings.num_repeats
    if not isinstance(repeats, int):
        raise ConfigError("num_repeats: a map is for agents that run rows on several servers (nemo_gym); give a number.")
    lines: list[bytes] = []
    for task, copies, row in _tasks(path, settings.limit, load_prompt(settings.prompt_config), settings, hasher):
        try:
            lines.extend(_lines_of(row, task, copies * repeats, is_seeded=settings.num_repeats_add_seed))
        except ValueError as error:
            raise DatasetError(f"{error}.", "Change the row.", f"{path}: task {task}") from error
    return lines


def _lines_of(row: dict[str, Any], task: int, repeats: int, *, is_seeded: bool) -> list[bytes]:
    return [rows.inventory_line(seeded(row, repeat) if is_seeded else row, task, repeat) for repeat in range(repeats)]


def _tasks(
    path: Path, limit: int | None, prompt: PromptConfig | None, settings: RunSettings, hasher: Any
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(task number, how often its line occurs, row) in order of first appearance."""
    seen: dict[bytes, _Seen] = {}
    for number, line in islice(_dataset_lines(path), limit):
        hasher.update(line + b"\n")
        seen.setdefault(line, _Seen(number)).copies += 1
    for task, (line, found) in enumerate(seen.items()):
        # Parsed one at a time: a parsed row takes several times the memory of its line.
        yield task, found.copies, _row(line, path, found.number, prompt, settings)


@dataclass(slots=True)
class _Seen:
    """Where a line of the dataset stands first, and how often it occurs."""

    number: int
    copies: int = 0


def _dataset_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from jsonl.read_lines(path)
    except FileNotFoundError as error:
        raise NotFoundError("there is no such dataset.", "Check input_jsonl_fpath.", path) from error
    except IsADirectoryError as error:
        raise NotFoundError("the dataset is a directory.", "Name a JSONL file in input_jsonl_fpath.", path) from error


def _row(line: bytes, path: Path, number: int, prompt: PromptConfig | None, settings: RunSettings) -> dict[str, Any]:
    where = f"{path}:{number}"
    row = _object_in(line, where)
    if reserved := sorted(key for key in row if key.startswith("_ng_")):
        raise DatasetError(f"the row has reserved keys: {', '.join(reserved)}.", "Remove keys that start with _ng_.", where)
    params = row.get("responses_create_params", {})
    if not isinstance(params, dict):
        raise DatasetError("responses_create_params is not an object.", "", where)
    params = {**params, **settings.responses_create_params}
    if prompt is not None:
        if "input" in params:
            raise DatasetError("the row has an input and the run a prompt_config.", "Use one of them.", where)
        try:
            params["input"] = messages_of(prompt, row)
        except ValueError as error:
            raise DatasetError(f"{error}.", "Change prompt_config or the row.", where) from error
    if "input" not in params:
        raise DatasetError("no responses_create_params.input.", "Give the row one, or the run a prompt_config.", where)
    return {**row, "responses_create_params": params}


def _object_in(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = jsonl.loads(line)
    except ValueError as error:
        raise DatasetError(f"not JSON: {error}.", "Each line must be one JSON object.", where) from error
    if not isinstance(row, dict):
        raise DatasetError(f"a {type(row).__name__}, not an object.", "Each line must be one JSON object.", where)
    return row


class Inventory:
    """A written inventory: which rollouts there are, and the line of each, read when it is asked for.

    Memory: 16 bytes a rollout, 8 after ``forget_keys``, plus explicit ids. The digest over all bytes is computed in the same
    pass.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: array[int] = array("q", [0])
        self._keys: array[int] = array("q")
        self._explicit: dict[int, str] = {}
        hasher = hashlib.sha256()
        for block in line_blocks(path):
            hasher.update(block)
            self._index(block)
        self.digest = hasher.hexdigest()
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _index(self, block: bytes) -> None:
        lines = block.splitlines(keepends=True) if b"\r" not in block else list(_lf_lines(block))
        stamps = rows.parse_places(block)
        if len(stamps) != len(lines):
            stamps = list(self._places_one_by_one(lines))
        first = len(self._keys)
        self._explicit.update({first + n: stamp.explicit_id for n, stamp in enumerate(stamps) if stamp.explicit_id})
        self._keys.extend([stamp.task << 32 | stamp.repeat for stamp in stamps])
        self._offsets.extend(islice(accumulate(map(len, lines), initial=self._offsets[-1]), 1, None))

    def _places_one_by_one(self, lines: list[bytes]) -> Iterator[rows.RowPlace]:
        """For blocks that the fast way cannot read: exact about every line, and names the one that is broken."""
        for number, line in enumerate(lines, start=len(self._keys) + 1):
            try:
                yield rows.parse_place(line)
            except ValueError as error:
                raise CorruptArtifactError(self.path, number, f"not an inventory row ({error}).") from error

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def forget_keys(self) -> None:
        """Keep less in memory: from now on a rollout's task and repeat are read from its line."""
        self._keys = array("q")

    def task(self, index: int) -> int:
        """The task number of rollout ``index``."""
        return self._key(index) >> 32

    def repeat(self, index: int) -> int:
        """The repeat number of rollout ``index``."""
        return self._key(index) & 0xFFFFFFFF

    def rollout_id(self, index: int) -> str:
        """``<task>-<repeat>``, or the explicit id that the dataset gave."""
        if index in self._explicit:
            return self._explicit[index]
        key = self._key(index)
        return f"{key >> 32}-{key & 0xFFFFFFFF}"

    def line(self, index: int) -> bytes:
        """The materialized row as it stands in the file, newline included."""
        begin, end = self._offsets[index], self._offsets[index + 1]
        return os.pread(self._descriptor, end - begin, begin)

    def index_by_id(self) -> dict[str, int]:
        """Every rollout id with its index; built when asked for. Raises CorruptArtifactError for an id that occurs twice."""
        found = {f"{key >> 32}-{key & 0xFFFFFFFF}": index for index, key in enumerate(self._keys)}
        if self._explicit:
            found = {self.rollout_id(index): index for index in range(len(self))}
        if len(found) != len(self):
            raise CorruptArtifactError(self.path, 0, "a rollout id occurs twice.")
        return found

    def _key(self, index: int) -> int:
        if self._keys:
            return self._keys[index]
        place = rows.parse_place(self.line(index))
        return place.task << 32 | place.repeat

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def line_blocks(path: Path, *, start: int = 0) -> Iterator[bytes]:
    """The bytes of ``path`` from ``start`` in blocks that end with a line; the last one may lack its newline."""
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        rest = b""
        while chunk := file.read(_BLOCK):
            chunk = rest + chunk
            end = chunk.rfind(b"\n") + 1
            rest = chunk[end:]
            if end:
                yield chunk[:end]
        if rest:
            yield rest


def _lf_lines(block: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(block):
        end = block.find(b"\n", begin) + 1 or len(block)
        yield block[begin:end]
        begin = end
