"""What lies where a lock has to be: something else than a lock is never written over, and nobody waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from collector import durable
from collector.errors import RefusedError, UnavailableError
from collector.shard.lock import ShardLock, is_held, read_holder
from collector.shard.lock_backends import LockBackend, explain_failure
from collector.shard.lock_file import check_lock_file
from tests.orchestrate.project import tree

NOTES = b"somebody's notes\n"


def linked(path: Path) -> None:
    path.symlink_to("notes")


def dangling(path: Path) -> None:
    path.symlink_to("nothing")


def looped(path: Path) -> None:
    path.symlink_to(path.name)


def hard_link(path: Path) -> None:
    path.hardlink_to(path.with_name("notes"))


def hard_link_to_nothing(path: Path) -> None:
    path.hardlink_to(path.with_name("empty"))


def other_text(path: Path) -> None:
    path.write_bytes(NOTES)


PLACES = [linked, dangling, looped, hard_link, hard_link_to_nothing, other_text, os.mkdir, os.mkfifo]


@pytest.mark.parametrize("backend", LockBackend)
@pytest.mark.parametrize("put", PLACES)
def test_what_is_no_lock_is_refused_and_stays(tmp_path: Path, put: Callable[[Path], None], backend: LockBackend) -> None:
    """A hard link's file was written over with the note, and a pipe was waited for without end."""
    (tmp_path / "notes").write_bytes(NOTES)
    (tmp_path / "empty").touch()
    path = tmp_path / "x.lock"
    put(path)
    before = tree(tmp_path)

    with pytest.raises(RefusedError, match="nothing was changed"), ShardLock(path, backend=backend):
        pass

    assert tree(tmp_path) == before


@pytest.mark.parametrize("put", PLACES)
def test_the_note_beside_a_lock_of_claims_is_looked_at_too(tmp_path: Path, put: Callable[[Path], None]) -> None:
    (tmp_path / "notes").write_bytes(NOTES)
    (tmp_path / "empty").touch()
    put(tmp_path / "x.lock.holder")
    before = tree(tmp_path)

    with pytest.raises(RefusedError, match=r"x\.lock\.holder"), ShardLock(tmp_path / "x.lock", backend=LockBackend.STRICT_SOFT):
        pass

    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(b"", id="nothing-yet"),
        pytest.param(b'{"host":"n3","pid":41}\n', id="a-note"),
        pytest.param(b'{"hos', id="a-torn-note"),
        pytest.param(bytes(40), id="zeros-of-a-power-failure"),
    ],
)
def test_what_a_crash_leaves_of_a_lock_is_taken(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "x.lock"
    path.write_bytes(left)

    with ShardLock(path) as lock:
        assert lock.is_still_ours()


def test_a_backup_by_hard_links_keeps_nobody_away(tmp_path: Path) -> None:
    with ShardLock(tmp_path / "x.lock"):
        pass
    (tmp_path / "backup").hardlink_to(tmp_path / "x.lock")

    with ShardLock(tmp_path / "x.lock") as lock:
        assert lock.is_still_ours()


def truncated(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("meanwhile", [truncated, Path.unlink], ids=["written-anew", "gone"])
def test_a_lock_that_its_holder_changes_while_it_is_looked_at_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], None]
) -> None:
    """Of sixteen merges at once some were told that the lock is somebody's file: its holder was writing the note."""
    path = tmp_path / "x.lock"
    path.write_bytes(b'{"host":"n3","pid":41}\n')
    really = Path.open

    def late(self: Path, *args: Any, **kwargs: Any) -> IO[Any]:
        if self == path:
            monkeypatch.undo()
            meanwhile(path)
        return really(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", late)

    check_lock_file(path)

    assert not path.exists() or path.read_bytes() == b""


def test_a_note_is_never_away_while_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is empty for a moment would not be known as a lock by its other name."""
    path = tmp_path / "x.lock"
    durable.overwrite_note(path, b'{"host":"a-long-name"}\n')
    really, sizes = os.ftruncate, list[int]()

    def looked_at(descriptor: int, size: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        really(descriptor, size)
        sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "ftruncate", looked_at)
    durable.overwrite_note(path, b'{"host":"n3"}\n')

    assert path.read_bytes() == b'{"host":"n3"}\n'
    assert sizes
    assert all(sizes)


def test_asking_for_a_pipe_does_not_wait_for_its_other_end(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    os.mkfifo(path)

    assert not is_held(path)
    assert read_holder(path) is None


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (OSError(38, "Function not implemented"), "Use a path on a file system with working locks."),
        (NotImplementedError("flock"), "Use a path on a file system with working locks."),
        (OSError(28, "No space left on device"), "Mend that, or use another path."),
    ],
)
def test_only_a_file_system_without_locks_is_called_one(error: OSError | NotImplementedError, cure: str) -> None:
    found = explain_failure(error)

    assert found.cure == cure
    assert str(UnavailableError(*found, "x.lock")).startswith("x.lock: ")
