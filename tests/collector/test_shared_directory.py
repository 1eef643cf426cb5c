"""Two users of one group and one run directory, and directories that cannot be written at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.as_user import GROUP
from tests.collector.shards import write_dataset
from tests.support import testkit

FIRST, SECOND = 48211, 48212

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every member of the group may write; outside pytest's own, which only root may enter."""
    path = Path(tempfile.mkdtemp(prefix="gym-eval-shared-"))
    os.chown(path, FIRST, GROUP)
    path.chmod(0o2775)
    write_dataset(path / "tasks.jsonl", [{"n": 0, "grade": 1, "fail": 99, "status": None}])
    yield path
    shutil.rmtree(path)


def session(directory: Path, user: int, mask: str, attempts: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.collector.as_user", str(directory), str(user), mask, str(attempts)]
    return subprocess.run(command, env=testkit.environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=False)


def test_a_colleague_resumes_a_run_that_the_group_may_write(shared: Path) -> None:
    first = session(shared, FIRST, "002", 1)
    second = session(shared, SECOND, "002", 2)

    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert (shared / "run" / "rollouts_failures.jsonl").read_bytes().count(b"\n") == 2


def test_a_colleague_who_may_not_write_is_told_whose_file_it_is_and_changes_nothing(shared: Path) -> None:
    session(shared, FIRST, "022", 1)
    run = shared / "run"
    before = {path: path.read_bytes() for path in run.iterdir()}

    refused = session(shared, SECOND, "022", 2)

    assert refused.returncode == 4, refused.stderr
    assert refused.stderr.count("\n") == 1
    assert f"uid {FIRST}" in refused.stderr
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_a_directory_that_cannot_be_made_is_a_refusal_in_one_line(shared: Path) -> None:
    shared.chmod(0o555)

    refused = session(shared, SECOND, "022", 1)

    assert refused.returncode == 4, refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "Ask for write access" in refused.stderr
