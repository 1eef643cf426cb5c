"""Whether files can be made where an output is wanted; asked before a lock is, whose own words would be about locks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from collector.errors import RefusedError, StorageError


def check_place(output: Path) -> None:
    """Raise RefusedError where the owner of the place says no, StorageError where no file can be. Leaves nothing behind.

    Directories that are missing will be made, so that the nearest one that is there decides.
    """
    place = output.absolute().parent
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            return
    except PermissionError as error:
        what = f"no file may be made in {place}: {error.strerror}."
        raise RefusedError(what, "Name another output, or ask for write access.", output) from error
    except OSError as error:
        raise StorageError(f"no file can be made in {place}: {error.strerror}.", "Name another output.", output) from error
