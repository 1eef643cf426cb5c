"""Whether what lies at the path of a lock is one: the note of its holder is written over whatever it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from collector.errors import RefusedError

#: How the file of a strict soft lock begins (filelock 4.3); a flock's file holds our own note.
STRICT_HEAD: Final = b"1\nfilelock-strict"
#: How a note begins: ``Holder`` as JSON.
NOTE_HEAD: Final = b'{"host":'
#: More than any head, and what a block of zeros is told by.
_LOOKED_AT: Final = 64
_CURE: Final = "Move it away, or use another place; nothing was changed."


def check_lock_file(path: Path) -> None:
    """Raise RefusedError unless ``path`` is free, or a file that holds a lock's note, or nothing. Reads only.

    filelock itself follows no link, and says of one that there are too many. OSError where it cannot be looked at.
    """
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(info.st_mode):
        raise RefusedError("it is a link, where a lock has to be a file of its own.", _CURE, path)
    if not stat.S_ISREG(info.st_mode):
        raise RefusedError("a lock has to be here, and this is no regular file.", _CURE, path)
    try:
        with path.open("rb") as file:
            head, links = file.read(_LOOKED_AT), os.fstat(file.fileno()).st_nlink
    except FileNotFoundError:
        # Its holder let go meanwhile.
        return
    is_new = not head and links == 1
    if not is_new and not is_of_lock(head):
        raise RefusedError("a lock has to be here, and this file is none: it is somebody's, or a hard link.", _CURE, path)


def is_of_lock(head: bytes) -> bool:
    """Whether a file that begins with ``head`` holds the note of a lock, whole or as a crash of the machine left it."""
    return bool(head) and (head.startswith((STRICT_HEAD, NOTE_HEAD)) or NOTE_HEAD.startswith(head) or not head.strip(b"\0"))
