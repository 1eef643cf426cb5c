"""From a dataset to the rows of its rollouts, one at a time: the memory it takes does not grow with what the rows weigh."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from collector import jsonl
from collector.agents.base import AGENTS, RowMaker
from collector.errors import ConfigError, DatasetError, NoTasksError, NotFoundError, StorageError
from collector.formats import rows
from collector.formats.rollout_key import key_of
from collector.preparation.copies import Copies, digest_of, find_copies
from collector.prompt import load_prompt, messages_of, seeded
from collector.settings import PromptConfig, RunSettings

_log = logging.getLogger(__name__)


class _Facts(NamedTuple):
    expected: int
    digest: str
    source_digest: str


class _Rows(Protocol):
    """Where the lines of an inventory come from. ``source_digest`` is right after a whole iteration."""

    source_digest: str

    def __iter__(self) -> Iterator[bytes]: ...


class Materialized:
    """The inventory that settings ask for, in (task, repeat) order; each iteration makes its lines anew.

    Iterating raises DatasetError with file and line for a row that cannot be used, and when the dataset is not what it was the
    time before; NoTasksError when there is no row at all.
    """

    def __init__(self, path: Path, found: _Rows) -> None:
        self._path = path
        self._rows = found
        self._facts: _Facts | None = None

    def __iter__(self) -> Iterator[bytes]:
        """One encoded line for each rollout."""
        made, expected = hashlib.sha256(), 0
        for line in self._rows:
            made.update(line)
            expected += 1
            yield line
        if not expected:
            raise NoTasksError("the dataset has no rows.", "Nothing can be evaluated.", self._path)
        facts = _Facts(expected, made.hexdigest(), self._rows.source_digest)
        if self._facts not in {None, facts}:
            raise DatasetError("it changed while it was read.", "Start again when nothing writes to it any more.", self._path)
        self._facts = facts

    def __len__(self) -> int:
        """How many rollouts there are."""
        return self._known().expected

    @property
    def digest(self) -> str:
        """SHA-256 of the inventory's bytes, in hex."""
        return self._known().digest

    @property
    def source_digest(self) -> str:
        """SHA-256 of the dataset's lines without blank ones and with LF at each end, in hex."""
        return self._known().source_digest

    def _known(self) -> _Facts:
        if self._facts is None:
            for _ in self:
                pass
        if self._facts is None:
            raise AssertionError("a whole iteration tells them")
        return self._facts


def materialize(settings: RunSettings) -> Materialized:
    """Every rollout that ``settings`` asks for. Writes nothing; most of what may be wrong is told by iterating.

    Identical input lines are one task, repeated; repeats of a task are adjacent. Raises NotFoundError for a missing dataset.
    """
    path = settings.input_jsonl_fpath
    agent = AGENTS.load(settings.agent["type"])
    if (own := agent.own_rows(settings)) is not None:
        return Materialized(path, _OwnRows(own))
    maker = agent.row_maker(settings)
    if maker is not None:
        return Materialized(path, _MadeRows(maker, maker.source(path), settings.limit))
    if not isinstance(settings.num_repeats, int):
        raise ConfigError("num_repeats: a map is for agents that run rows on several servers (nemo_gym); give a number.")
    return Materialized(path, _DatasetRows(settings, settings.num_repeats))


class _DatasetRows:
    """Each distinct line of the dataset, as often as it stands there times ``repeats``."""

    def __init__(self, settings: RunSettings, repeats: int) -> None:
        self.source_digest = ""
        self._settings = settings
        self._path = settings.input_jsonl_fpath
        self._repeats = repeats
        self._prompt = load_prompt(settings.prompt_config)
        self._copies = _reported_copies(self._path, settings.limit).counts

    def __iter__(self) -> Iterator[bytes]:
        source = hashlib.sha256()
        left, task = dict(self._copies), 0
        for number, line in islice(_dataset_lines(self._path), self._settings.limit):
            source.update(line + b"\n")
            digest = digest_of(line) if self._copies else b""
            copies = left.pop(digest, 0 if digest in self._copies else 1)
            if copies:
                yield from self._lines_of(line, number, task, copies)
                task += 1
        self.source_digest = source.hexdigest()

    def _lines_of(self, line: bytes, number: int, task: int, copies: int) -> Iterator[bytes]:
        row = _row(line, self._path, number, self._prompt, self._settings)
        try:
            for repeat in range(copies * self._repeats):
                sent = seeded(row, repeat) if self._settings.num_repeats_add_seed else row
                yield rows.inventory_line(sent, task, repeat)
        except ValueError as error:
            raise DatasetError(f"{error}.", "Change the row.", f"{self._path}: task {task}") from error


class _MadeRows:
    """Rows that an agent makes of the dataset's, once, and not in order: kept in a file without a name."""

    def __init__(self, maker: RowMaker, path: Path, limit: int | None) -> None:
        source = hashlib.sha256()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it ends with this object
        self._keys: array[int] = array("q")
        self._ends: array[int] = array("q", [0])
        for number, line in islice(_dataset_lines(path), limit):
            source.update(line + b"\n")
            where = f"{path}:{number}"
            try:
                for task, repeat, row in maker.rows_of(line, _object_in(line, where)):
                    self._keep(task, repeat, rows.inventory_line(row, task, repeat))
            except ValueError as error:
                raise DatasetError(f"{error}.", "Change the row, or the settings of the agent.", where) from error
        maker.finish(path)
        _reported_copies(path, limit)
        with _kept_on_disk():
            self._file.flush()
        self.source_digest = source.hexdigest()

    def _keep(self, task: int, repeat: int, line: bytes) -> None:
        with _kept_on_disk():
            self._file.write(line)
        self._keys.append(key_of(task, repeat))
        self._ends.append(self._ends[-1] + len(line))

    def __iter__(self) -> Iterator[bytes]:
        for index in sorted(range(len(self._keys)), key=self._keys.__getitem__):
            self._file.seek(self._ends[index])
            yield self._file.read(self._ends[index + 1] - self._ends[index])


@contextmanager
def _kept_on_disk() -> Generator[None]:
    try:
        yield
    except OSError as error:
        what = f"no temporary file can be written there: {error.strerror}."
        raise StorageError(what, "Make room, or name another directory in TMPDIR.", tempfile.gettempdir()) from error


class _OwnRows:
    """Rows that no dataset has."""

    def __init__(self, own: Sequence[Mapping[str, Any]]) -> None:
        self._lines = [rows.inventory_line(row, task, 0) for task, row in enumerate(own)]
        self.source_digest = hashlib.sha256(b"".join(self._lines)).hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines)


def _reported_copies(path: Path, limit: int | None) -> Copies:
    """The equal rows of the dataset, told to whoever made it: what rests on further repeats rests on few tasks."""
    found = find_copies(lambda: islice(_dataset_lines(path), limit))
    if found.note:
        _log.warning("%s: %s", path, found.note)
    return found


def _dataset_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DatasetError("the dataset is no regular file, and it is read more than once.", "Copy it into one.", path)
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
