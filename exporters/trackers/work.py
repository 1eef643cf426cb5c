"""A folder for what an export makes on its way; what killed exports left of theirs is removed by the next."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import filelock

#: Not below the exporter's own folder: a server may be told where a file lay, and that is nobody's business.
_PREFIX: Final = "gym-eval-"
_LOCK: Final = ".lock"


@contextmanager
def work_folder() -> Generator[Path]:
    """A folder in the temporary directory that goes when the block ends, or with the next export when this process is killed.

    Its lock is taken before it exists and ends with the process: a folder whose lock is free is nobody's.
    """
    home = Path(tempfile.gettempdir())
    _sweep(home)
    folder = home / f"{_PREFIX}{secrets.token_hex(8)}"
    lock = filelock.FileLock(f"{folder}{_LOCK}", timeout=0, fallback_to_soft=False)
    with lock:
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(folder)


def _sweep(home: Path) -> None:
    """Remove the folders that this user's killed exports left."""
    for path in home.glob(f"{_PREFIX}*{_LOCK}"):
        folder = path.with_name(path.name.removesuffix(_LOCK))
        with suppress(OSError, filelock.Timeout):
            # Without a folder its owner may be about to make it.
            if path.stat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink():
                with filelock.FileLock(path, timeout=0, fallback_to_soft=False):
                    _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_name(folder.name + _LOCK).unlink(missing_ok=True)
