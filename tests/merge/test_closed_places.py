"""Patterns over directories of several people: what one of them keeps closed is told, since a score without it is another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.merge import jobs
from tests.merge.legacy_files import row, write

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")

FIND = """
import os, sys
from merge.inputs.sources import find_runs
os.setgroups([]); os.setgid(48210); os.setuid(48211)
for _ in range(2):
    print(len(find_runs(sys.argv[1:])))
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """Three directories with rows; outside pytest's own, which only root may enter."""
    path = Path(tempfile.mkdtemp(prefix="gym-eval-shared-"))
    path.chmod(0o755)
    for name in ("a", "b", "c"):
        write(path / name / "r.jsonl", [row(0)]).parent.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize(
    ("pattern", "mode", "matches", "is_told"),
    [
        pytest.param("*/r.jsonl", 0o700, 2, True, id="closed"),
        pytest.param("*/*.jsonl", 0o711, 2, True, id="not-to-be-listed"),
        pytest.param("**/*.jsonl", 0o711, 2, True, id="not-to-be-listed-at-any-depth"),
        pytest.param("*/r.jsonl", 0o711, 3, False, id="a-given-name-in-it"),
        pytest.param("[ac]/r.jsonl", 0o700, 2, False, id="not-meant"),
        pytest.param("*/r.jsonl", 0o755, 3, False, id="open"),
    ],
)
def test_a_directory_that_a_pattern_may_not_look_into_is_told_once(
    shared: Path, pattern: str, mode: int, matches: int, is_told: bool
) -> None:
    (shared / "b").chmod(mode)

    done = subprocess.run(
        [sys.executable, "-c", FIND, str(shared / pattern)], cwd=jobs.ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [str(matches)] * 2
    told = f"passed over, since its owner forbids a look into it: {shared / 'b'}\n"
    assert done.stderr == (told if is_told else "")
