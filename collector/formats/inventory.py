"""The frozen list of all rollouts of a run as it stands on disk: read by offset, never in memory as a whole."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from collector.errors import BrokenInventoryError, CorruptArtifactError
from collector.formats import rows
from collector.formats.rollout_key import counted_id, key_of, repeat_of, task_of

#: Bytes read at once when a file of lines is scanned; a few copies of a block exist at a time.
_BLOCK = 1 << 20


class LineFacts(NamedTuple):
    """The number of lines of an inventory, and SHA-256 over their concatenation, in hex."""

    expected: int
    digest: str


def facts_of_lines(lines: Iterable[bytes]) -> LineFacts:
    """The facts of ``lines``, which are read once and not kept."""
    hasher, expected = hashlib.sha256(), 0
    for line in lines:
        hasher.update(line)
        expected += 1
    return LineFacts(expected, hasher.hexdigest())


def digest_of_lines(lines: Iterable[bytes]) -> str:
    """SHA-256 over the concatenation of ``lines``, in hex."""
    return facts_of_lines(lines).digest


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
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for block in _blocks_of(self._descriptor, 0):
                hasher.update(block)
                self._index(block)
        except BaseException:
            self.close()
            raise
        self.digest = hasher.hexdigest()

    def _index(self, block: bytes) -> None:
        lines = block.splitlines(keepends=True) if b"\r" not in block else list(_lf_lines(block))
        stamps = rows.parse_places(block)
        if len(stamps) != len(lines):
            stamps = list(self._places_one_by_one(lines))
        first = len(self._keys)
        self._explicit.update({first + n: stamp.explicit_id for n, stamp in enumerate(stamps) if stamp.explicit_id})
        # Written out here and in ``index_by_id``: a shard may have millions of rows.
        self._keys.extend([stamp.task << 32 | stamp.repeat for stamp in stamps])
        self._offsets.extend(islice(accumulate(map(len, lines), initial=self._offsets[-1]), 1, None))

    def _places_one_by_one(self, lines: list[bytes]) -> Iterator[rows.RowPlace]:
        """For blocks that the fast way cannot read: exact about every line, and names the one that is broken."""
        for number, line in enumerate(lines, start=len(self._keys) + 1):
            try:
                yield rows.parse_place(line)
            except ValueError as error:
                raise BrokenInventoryError(self.path, number, f"not an inventory row ({error}).") from error

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def forget_keys(self) -> None:
        """Keep less in memory: from now on a rollout's task and repeat are read from its line."""
        self._keys = array("q")

    @property
    def keys(self) -> array[int]:
        """``key`` of every rollout, unless they were forgotten; not to be changed."""
        return self._keys

    def key(self, index: int) -> int:
        """Task and repeat of rollout ``index`` as one number, of which ``rollout_key`` tells."""
        if self._keys:
            return self._keys[index]
        place = rows.parse_place(self.line(index))
        return key_of(place.task, place.repeat)

    def task(self, index: int) -> int:
        """The task number of rollout ``index``."""
        return task_of(self.key(index))

    def repeat(self, index: int) -> int:
        """The repeat number of rollout ``index``."""
        return repeat_of(self.key(index))

    def rollout_id(self, index: int) -> str:
        """``<task>-<repeat>``, or the explicit id that the dataset gave."""
        if index in self._explicit:
            return self._explicit[index]
        return counted_id(self.key(index))

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

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def begins(path: Path, lines: Iterable[bytes]) -> bool:
    """Whether the file at ``path`` holds the beginning of ``lines``, or all of them.

    NUL bytes at its end are those of a file system that lost what was written last, and count for nothing.
    """
    size = _size_without_nuls(path)
    with path.open("rb") as file:
        for line in lines:
            if not size:
                break
            if not line.startswith(file.read(min(size, len(line)))):
                return False
            size -= min(size, len(line))
    return not size


def _size_without_nuls(path: Path) -> int:
    size = path.stat().st_size
    with path.open("rb") as file:
        while size:
            start = max(0, size - _BLOCK)
            file.seek(start)
            kept = file.read(size - start).rstrip(b"\0")
            size = start + len(kept)
            if kept:
                break
    return size


def line_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of ``path`` in blocks that end with a line; the last one may lack its newline."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from _blocks_of(descriptor, 0)
    finally:
        os.close(descriptor)


def _blocks_of(descriptor: int, offset: int) -> Iterator[bytes]:
    rest = b""
    while chunk := os.pread(descriptor, _BLOCK, offset):
        offset += len(chunk)
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
