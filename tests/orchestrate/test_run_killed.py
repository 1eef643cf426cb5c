"""`gym eval run` killed again and again while a real server answers it: each rollout is recorded once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import testkit
from tests.support.model_server import ModelServer

TASKS = 150
KILLS = 20
PARALLEL = 4


def command(directory: Path, server: ModelServer) -> list[str]:
    return [
        sys.executable, "-m", "orchestrate.cli.main", "eval", "run", "--input", str(directory / "tasks.jsonl"),
        "--output", str(directory / "out" / "rollouts.jsonl"), "--model", server.model, "--model-url", server.base_url,
        "--verifier", "number", "--concurrency", str(PARALLEL), "+retry.max_interruptions=50",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_twenty_kills_at_random_moments_record_every_rollout_once(tmp_path: Path) -> None:
    prompt = "[[task: t{n}]] [[answer: {n}]] [[delay: 0.03]]"
    rows = [{"expected_answer": n, "responses_create_params": {"input": prompt.replace("{n}", str(n))}} for n in range(TASKS)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chance = random.Random(7)
    killed = 0
    with ModelServer(tmp_path) as server:
        for _ in range(KILLS):
            before = sum(server.counts().values())
            child = subprocess.Popen(
                command(tmp_path, server),
                env=testkit.environment(),
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            # The first request of this session has arrived, or there is nothing left to ask.
            while child.poll() is None and sum(server.counts().values()) == before:
                time.sleep(0.02)
            time.sleep(0.15 * chance.random())
            killed += child.poll() is None
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        done = subprocess.run(
            command(tmp_path, server), env=testkit.environment(), cwd=tmp_path, capture_output=True, text=True, check=False
        )
        asked = Counter({task: count for task, count in server.counts().items() if task.startswith("t")})

    assert done.returncode == 0, done.stderr
    recorded = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert sorted(row["_ng_task_index"] for row in recorded) == list(range(TASKS))
    assert all(row["reward"] == 1.0 for row in recorded)
    assert killed >= KILLS // 2
    # Only what was in flight at a kill may have been asked again.
    assert len(asked) == TASKS
    assert sum(asked.values()) - TASKS <= killed * PARALLEL
