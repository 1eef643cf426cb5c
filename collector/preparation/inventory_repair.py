"""An inventory that lacks its end, made whole from the dataset that it was made from; the manifest proves that it is the same.

No crash of ours leaves one, since the manifest comes last; a file system that loses what was written late does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import BrokenInventoryError, GymEvalError
from collector.formats.inventory import digest_of_lines, line_blocks
from collector.formats.manifest import Manifest, read_manifest
from collector.preparation.materialize import Materialized, materialize
from collector.settings import RunSettings
from collector.text.counted import agreeing, counted

_CURE: Final = "Restore the file, or give back the dataset as it was and resume."


def restore_inventory(artifacts: RunArtifacts, settings: RunSettings, fence: Callable[[], None]) -> bool:
    """Whether the inventory lacked its end and was made whole. The caller holds the shard's lock, ``fence`` tells its loss.

    The part of a dealt benchmark is found when only its last row is cut or gone; a whole one whatever is gone of its end.
    Raises BrokenInventoryError, and leaves the file alone, when that does not give what the manifest was written for.
    """
    manifest, path = read_manifest(artifacts.manifest), artifacts.inventory
    if manifest is None or not path.is_file() or digest_of_lines(line_blocks(path)) == manifest.inventory_digest:
        return False
    kept = sum(block.count(b"\n") for block in line_blocks(path))
    if kept >= manifest.expected:
        # Nothing is missing, so something is wrong: whoever reads it says in which line.
        return False
    lines = _whole_lines(path, kept, manifest, _source_of(settings, manifest, path))
    with durable.staged(path, fence=fence) as file:
        file.write_lines(lines)
    return True


def _source_of(settings: RunSettings, manifest: Manifest, path: Path) -> Materialized:
    what = f"{counted(manifest.expected, 'row')} {agreeing(manifest.expected, 'were')} written and the end of them is gone"
    try:
        found = materialize(settings)
        digest = found.source_digest
    except GymEvalError as error:
        raise BrokenInventoryError(path, 0, f"{what}; the dataset cannot be read ({error}).", _CURE) from error
    if digest != manifest.source_digest:
        raise BrokenInventoryError(path, 0, f"{what}; {settings.input_jsonl_fpath} was changed since.", _CURE)
    return found


def _whole_lines(path: Path, kept: int, manifest: Manifest, found: Materialized) -> Iterator[bytes]:
    if found.digest == manifest.inventory_digest and _digest_of_first(found, kept) == _digest_of_first(_lines(path), kept):
        return iter(found)
    last = _last_line(path, kept, manifest, found)
    if last is None:
        gone = manifest.expected - kept
        told = f"{counted(gone, 'row', of=manifest.expected)} {agreeing(gone, 'are')} gone"
        what = f"{told}, and the dataset does not tell which."
        raise BrokenInventoryError(path, 0, what, _CURE)
    return chain(islice(_lines(path), kept), [last])


def _last_line(path: Path, kept: int, manifest: Manifest, found: Materialized) -> bytes | None:
    """The one row of the benchmark that makes the digest the manifest's, when only one is missing."""
    if kept != manifest.expected - 1:
        return None
    before = hashlib.sha256()
    for line in islice(_lines(path), kept):
        before.update(line)
    for line in found:
        whole = before.copy()
        whole.update(line)
        if whole.hexdigest() == manifest.inventory_digest:
            return line
    return None


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=1 << 20) as file:
        yield from file


def _digest_of_first(lines: Iterable[bytes], count: int) -> str:
    return digest_of_lines(islice(lines, count))
