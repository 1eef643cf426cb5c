"""The only package that makes bytes durable: append, atomic publication, repair.

Promises, on a local POSIX file system and on those network file systems that honour fsync:

* ``publish`` and ``staged``: after a crash a reader sees the old file or the new one, never a mixture.
* ``publish_new``: the same, and a file that somebody else has made meanwhile is never replaced.
* ``staged_dir``: a whole directory or none. One that may replace another leaves, when it is killed, the old, the new or none.
* ``discard``: files go one after the other, and none after the lock is lost.
* ``AppendFile.append``: one write call per batch, newline included; durable after ``sync``, or by ``append_lines``.
* Temporary names are hidden, carry a random part and end in ``.tmp``; ``sweep`` removes those a crash left behind.

Not promised: anything about hardware that acknowledges a flush it did not do.
"""

from collector.durable.directory import staged_dir, write_new, write_new_lines, write_synced
from collector.durable.growing import AppendFile, append_lines, create_missing
from collector.durable.names import (
    FileId,
    asked_for,
    discard,
    is_temporary,
    make_dir,
    real_path,
    remove,
    remove_tree,
    rename,
    sweep,
    sync_dir,
)
from collector.durable.notes import open_log, overwrite_note
from collector.durable.publication import StagedFile, publish, publish_lines, publish_new, renew, staged

__all__ = [
    "AppendFile", "FileId", "StagedFile", "append_lines", "asked_for", "create_missing", "discard", "is_temporary", "make_dir",
    "open_log", "overwrite_note", "publish", "publish_lines", "publish_new", "real_path", "remove", "remove_tree", "rename",
    "renew", "staged", "staged_dir", "sweep", "sync_dir", "write_new", "write_new_lines", "write_synced",
]  # fmt: skip
