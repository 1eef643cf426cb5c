"""The lock of what is published: waited for while another has it, and given up by name after a time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from collector.errors import LockHeldError
from merge.publication.lock import waiting_lock


def test_whoever_has_the_lock_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / "merge.lock"

    with waiting_lock(path), pytest.raises(LockHeldError) as caught, waiting_lock(path, timeout_s=0.2):
        pytest.fail("two have the lock")

    assert f"process {os.getpid()} on " in str(caught.value)
    assert "still holds the lock after 0.2 s. Wait for it, or end it." in str(caught.value)


def test_the_lock_is_had_when_the_other_lets_it_go(tmp_path: Path) -> None:
    path = tmp_path / "merge.lock"
    is_held, is_seen_held = threading.Event(), threading.Event()

    def hold() -> None:
        with waiting_lock(path):
            is_held.set()
            assert is_seen_held.wait(20)

    other = threading.Thread(target=hold)
    other.start()
    assert is_held.wait(20)
    with pytest.raises(LockHeldError), waiting_lock(path, timeout_s=0):
        pytest.fail("two have the lock")
    is_seen_held.set()

    with waiting_lock(path, timeout_s=20):
        other.join(20)

    assert not other.is_alive()
