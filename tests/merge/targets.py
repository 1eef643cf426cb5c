"""A merge that is refused, and every file looked at before and after it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from collector.errors import RefusedError
from merge.command import merge_paths
from tests.merge.build import Plan, answered, fill_all, plan


def two_shards(root: Path) -> Plan:
    made = plan(root / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())
    return made


def snapshot(root: Path) -> dict[str, tuple[str, int]]:
    """Digest or link target, and inode, of everything below ``root``."""
    found: dict[str, tuple[str, int]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            what = str(path.readlink())
        else:
            what = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[str(path)] = (what, info.st_ino)
    return found


def refused(made: Plan, target: Path, match: str) -> None:
    before = snapshot(made.directory.parent)
    with pytest.raises(RefusedError, match=match) as caught:
        merge_paths([made.directory], target)
    assert caught.value.exit_code == 4
    assert snapshot(made.directory.parent) == before
