"""A regrading that is killed at any moment loses no verdict, records none twice, and never judges again what is recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import testkit


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("which", "least"),
    [
        pytest.param("all", 60, id="into-a-run-of-its-own"),
        pytest.param("judge-failed-only", 60, id="only-failed-judgements"),
        pytest.param("append", 20, id="into-the-run-itself"),
        pytest.param("append-flagged", 20, id="with-results-that-become-failures"),
        pytest.param("overwrite", 60, id="in-place-of-an-older-one"),
    ],
)
def test_a_kill_before_any_disk_call_is_gone_on_from(tmp_path: Path, which: str, least: int) -> None:
    command = [sys.executable, "-m", "tests.collector.reverify_sweep", str(tmp_path / "sweep"), which]

    done = subprocess.run(command, env=testkit.environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=True)

    figures = json.loads(done.stdout)
    assert figures["wrong"] == {}, done.stderr
    assert figures["points"] > least
