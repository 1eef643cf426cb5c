"""Longer than a test may take, and asked for by name (``make soak``): a thousand killed sessions, and a fault at each call."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.collector.shards import asked, fill, rollout_ids, settings_for, states, write_dataset
from tests.collector.test_collect_faults import TASKS, run_with_fault
from tests.support import testkit
from tests.support.requirements import require

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def test_a_thousand_sessions_killed_at_random_lose_double_and_change_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.collector.killed_sessions", str(tmp_path / "shard")]

    done = subprocess.run(command, env=testkit.environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=True)

    print(done.stdout)
    figures = json.loads(done.stdout)
    assert figures["wrong"] == {}
    assert figures["states"] == {"measured": 4500, "masked": 500}
    assert figures["killed"] == figures["killed while work was left"] == figures["sessions"] == 1000


@pytest.mark.parametrize(
    ("call", "error", "most"),
    [
        pytest.param("write", "ENOSPC", 80, id="no-space-at-each-write"),
        pytest.param("fdatasync", "EIO", 80, id="each-data-sync-fails"),
        pytest.param("fsync", "EIO", 80, id="each-sync-fails"),
        pytest.param("rename", "EIO", 20, id="each-rename-fails"),
        pytest.param("flock", "ENOLCK", 5, id="no-locks-left"),
        pytest.param("flock", "ENOSYS", 5, id="no-locks-at-all"),
    ],
)
def test_a_fault_at_each_call_ends_in_a_message_and_costs_no_record(tmp_path: Path, call: str, error: str, most: int) -> None:
    require("injecting faults into system calls", [] if shutil.which("strace") else ["strace"])
    met, wrong = 0, Counter[str]()
    for when in range(1, most + 1):
        directory = tmp_path / str(when)
        directory.mkdir()
        write_dataset(directory / "tasks.jsonl", TASKS)
        settings = settings_for(directory, num_samples_in_parallel=2, retry={"max_attempts": 30})

        failed = run_with_fault(directory, call, f"error={error}:when={when}", [])
        before = sum(asked(directory).values())
        fill(settings)

        met += failed.returncode != 0
        # Not whether a traceback is there: the fault may meet the very write of the message.
        wrong["unexplained"] += failed.returncode != 0 and os.strerror(getattr(errno, error)) not in failed.stderr
        found = rollout_ids(settings.output_jsonl_fpath)
        wrong["doubled"] += len(found) - len(set(found))
        wrong["missing"] += 7 - len(set(found))
        wrong["not measured"] += states(settings) != {"measured": 7}
        wrong["asked again"] += sum(asked(directory).values()) > before + 8
        wrong["leftovers"] += len(list((directory / "run").glob(".*.tmp")))
        shutil.rmtree(directory)
        if failed.returncode == 0:
            break
    print(json.dumps({"call": call, "error": error, "points": met, "wrong": dict(+wrong)}))
    assert +wrong == Counter()
    assert met > 0
