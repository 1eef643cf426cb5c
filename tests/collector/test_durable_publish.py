"""Publication: links, modes, directories that refuse, and temporaries that a crash left."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from collector import durable
from collector.errors import FencedError


def left_by_a_crash(path: Path) -> Path:
    temporary = path.with_name(f".{path.name}.0123456789abcdef.tmp")
    temporary.write_bytes(b"half")
    return temporary


@pytest.mark.parametrize("name", ["rollouts.jsonl", "a[1]*?.jsonl", "..odd name"])
def test_what_a_crashed_publication_left_is_swept_and_nothing_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    temporary = left_by_a_crash(path)
    kept = [tmp_path / f".{name}.backup.tmp", left_by_a_crash(tmp_path / f"{name}.lock")]
    kept[0].write_bytes(b"a user's own")

    swept = durable.sweep(path)

    assert swept == [temporary]
    assert all(other.exists() for other in kept)


def test_the_temporaries_of_a_linked_file_lie_beside_its_target_and_are_swept_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "x.json", tmp_path / "x.json"
    link.symlink_to(target)
    temporary = left_by_a_crash(target)

    durable.sweep(link)
    durable.publish(link, b"new")

    assert not temporary.exists()
    assert (link.is_symlink(), target.read_bytes(), list(target.parent.iterdir())) == (True, b"new", [target])


@pytest.mark.parametrize("is_linked", [False, True], ids=["itself", "behind-a-link"])
def test_a_pipe_or_a_device_is_never_replaced(tmp_path: Path, is_linked: bool) -> None:
    """A result that was a link to /dev/null made a file of it, when root published, for the whole machine."""
    pipe, path = tmp_path / "pipe", tmp_path / "x.json"
    os.mkfifo(pipe if is_linked else path)
    if is_linked:
        path.symlink_to(pipe)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(OSError, match="nothing else is replaced"):
        durable.publish(path, b"x")

    assert (pipe if is_linked else path).is_fifo()
    assert sorted(tmp_path.iterdir()) == before


def test_the_mode_of_a_replaced_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(0o640)

    durable.publish(path, b"new")

    assert path.stat().st_mode & 0o777 == 0o640


def test_a_directory_whose_file_system_cannot_sync_it_still_takes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Met on network file systems: fsync of a directory is EINVAL there."""
    sync = os.fsync

    def refuse_directories(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_directories)

    durable.publish(tmp_path / "x", b"new")

    assert (tmp_path / "x").read_bytes() == b"new"


def test_a_directory_that_fails_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match="Input/output error"):
        durable.sync_dir(tmp_path)


def test_files_are_removed_one_after_the_other_until_the_lock_is_lost(tmp_path: Path) -> None:
    """It checked in time, and slept: whoever took the lock then swept away where they would be moved to."""
    paths = [tmp_path / name for name in ("a", "b", "never there")]
    for path in paths[:2]:
        path.write_bytes(b"a successor's")

    def sleep() -> None:
        if not durable.sweep(paths[0]):
            raise FencedError("the lock is lost")

    with pytest.raises(FencedError):
        durable.discard(paths, fence=sleep)
    assert sorted(tmp_path.iterdir()) == paths[:2]

    durable.discard(paths, fence=lambda: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failing", [1, 2], ids=["the-file", "its-directory"])
def test_a_full_disk_is_told_with_the_file_that_it_did_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """A call that knows a descriptor only names no file, and a command takes such an error for a bug."""
    path, calls = tmp_path / "x.json", 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as refused:
        durable.publish(path, b"{}")

    assert refused.value.filename == str(path if failing == 1 else tmp_path)


@pytest.mark.parametrize("most", [1 << 30, 3])
def test_pieces_of_any_size_and_number_land_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Many short ones, one longer than a call, and a system that writes only ``most`` bytes a call."""
    calls: list[int] = []

    def pwritev(descriptor: int, pieces: list[memoryview], offset: int) -> int:
        calls.append(sum(map(len, pieces)))
        return os.pwrite(descriptor, b"".join(pieces)[:most], offset)

    monkeypatch.setattr("collector.durable.publication.os.pwritev", pwritev)
    lengths = [1] * 2500 + [0, 700_000, 7] + [4_183] * 300
    lines = [memoryview(bytes([65 + number % 26]) * length) for number, length in enumerate(lengths)]
    path = tmp_path / "x"

    with durable.staged(path) as file:
        file.write_at(2, lines)
        file.write_at(0, [memoryview(b"ab")])
        file.write_at(0, [])

    assert path.read_bytes() == b"ab" + b"".join(lines)
    # A longer call makes Linux look for as much memory in one piece; a single row cannot be divided.
    assert max(calls) == 700_000
    assert sorted(calls)[-2] <= 1 << 19
