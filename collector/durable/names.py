"""Names of files, durable: creations, renames and removals, and the temporaries of publications."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: The name of ``temporary_name``, with that of its target in it.
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class FileId(NamedTuple):
    """What the kernel knows a file by; a path can be given to another file, this cannot."""

    dev: int
    ino: int

    @classmethod
    def of(cls, info: os.stat_result) -> FileId:
        return cls(info.st_dev, info.st_ino)


def make_dir(path: Path) -> None:
    """Make ``path`` a directory, parents included, with every new entry durable."""
    missing: list[Path] = []
    here = path
    while not here.is_dir():
        missing.append(here)
        here = here.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir()
        sync_dir(directory.parent)


def sync_dir(path: Path) -> None:
    """Make the names in ``path`` durable: creations, renames and removals."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call for directories, and make names durable by themselves or not at all.
        if error.errno not in _NO_DIRECTORY_SYNC:
            error.filename = str(path)
            raise
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove the file at ``path`` if there is one, durably."""
    with suppress(FileNotFoundError):
        os.unlink(path)
        sync_dir(path.parent)


def remove_tree(path: Path) -> None:
    """Remove the directory at ``path`` with all that is in it: its name is gone in one step, the rest may outlive a crash."""
    temporary = temporary_name(path)
    os.rename(path, temporary)
    sync_dir(path.parent)
    shutil.rmtree(temporary)


def rename(source: Path, target: Path) -> None:
    """Give ``source`` the name ``target`` in the same directory tree, durably."""
    os.rename(source, target)
    sync_dir(target.parent)
    if source.parent != target.parent:
        sync_dir(source.parent)


def replace_tree(source: Path, target: Path) -> None:
    """Give the directory ``source`` the name of ``target``, durably; what was there goes. Both have one parent.

    Never half of each: a crash in between leaves the name free, and the old directory as a temporary that ``sweep`` removes.
    """
    old = temporary_name(target)
    os.rename(target, old)
    try:
        os.rename(source, target)
    except BaseException:
        os.rename(old, target)
        raise
    sync_dir(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def discard(paths: Sequence[Path], *, fence: Callable[[], None]) -> None:
    """Remove those of ``paths``, all of one directory, that exist, durably and in this order. Links go, not what they lead to.

    ``fence`` raises when the lock is lost, as for ``staged``: the files are moved into a directory that exists before it is
    asked, a temporary of the first path. Whoever takes the lock after that sweeps it away, and nothing more is removed.
    """
    temporary = temporary_name(paths[0])
    temporary.mkdir()
    try:
        fence()
        for path in paths:
            try:
                os.rename(path, temporary / path.name)
            except FileNotFoundError:
                if not temporary.is_dir():
                    fence()
                    raise
            else:
                sync_dir(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sweep(path: Path, *, fence: Callable[[], None] | None = None) -> list[Path]:
    """Remove the temporaries that a crashed publication or removal of ``path`` left beside it, and name them.

    The caller holds the lock under which ``path`` is published; a live temporary would be removed otherwise. ``fence`` raises
    when it is lost. It is asked when the names are known: those of a later owner are not among them.
    """
    left = {entry: place for place in (path, target_of(path)) for entry in _temporaries_of(place)}
    if fence is not None:
        fence()
    for entry, place in left.items():
        with suppress(FileNotFoundError):
            if entry.is_dir():
                # Its owner may be about to move a file into it, and from one moment to the next it cannot.
                gone = temporary_name(place)
                os.rename(entry, gone)
                shutil.rmtree(gone)
            else:
                os.unlink(entry)
    return list(left)


def _temporaries_of(target: Path) -> list[Path]:
    if not target.parent.is_dir():
        return []
    return [entry for entry in target.parent.iterdir() if _temporary_of(entry) == target.name]


def is_temporary(path: Path) -> bool:
    """Whether ``path`` is a file or directory, and no link, with a name that publications and removals give for a moment."""
    return _temporary_of(path) is not None


def _temporary_of(path: Path) -> str | None:
    found = _TEMPORARY.fullmatch(path.name)
    return None if found is None or path.is_symlink() else found[1]


def target_of(path: Path) -> Path:
    """The file that ``path`` means: a symbolic link stands for what it leads to."""
    return real_path(path) if path.is_symlink() else path


def real_path(path: Path) -> Path:
    """``path`` as absolute, links followed as far as they lead. A loop of links stays as it is: opening it tells.

    ``Path.resolve`` raises RuntimeError there until Python 3.12, in the middle of whatever is done.
    """
    return Path(os.path.realpath(path))


def asked_for(name: str) -> str:
    """The file that somebody asked for, where ``name`` is what it is called while it is written."""
    return re.sub(r"(^|/)\.([^/]+)\.[0-9a-f]{16}\.tmp(?=/|$)", r"\1\2", name)


def temporary_name(target: Path) -> Path:
    """A hidden name beside ``target`` that ``sweep`` knows."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
