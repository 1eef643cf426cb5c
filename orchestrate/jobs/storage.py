"""What a job says where the disk, and none of its own work, is what went wrong."""

from __future__ import annotations

from errno import EDQUOT, EFBIG, EIO, ENOSPC, EROFS, ESTALE
from pathlib import Path
from typing import Final

from collector.errors import StorageError

#: A write that is refused names no file: what is written to was opened before.
_OF_A_DISK: Final = frozenset({EDQUOT, EFBIG, EIO, ENOSPC, EROFS, ESTALE})


def storage_error(error: OSError, where: str | Path = "") -> StorageError | None:
    """``error`` in one line; None for one that neither names a file nor is a disk's, which is a bug of ours."""
    if error.strerror is None or (error.filename is None and error.errno not in _OF_A_DISK):
        return None
    place = f"{where}: " if where and error.filename is not None else ""
    fix = (
        "Make room, then run the submit command again." if error.errno in {EDQUOT, ENOSPC} else "Mend that, then submit again."
    )
    return StorageError(f"{error.strerror}.", fix, f"{place}{error.filename}" if error.filename is not None else where)
