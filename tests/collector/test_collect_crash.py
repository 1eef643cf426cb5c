"""A collector that is killed at any moment loses nothing that it acknowledged, and doubles nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from tests.collector.shards import asked, fill, rollout_ids, settings_for, states, write_dataset
from tests.support import testkit


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("which", "least"),
    [
        pytest.param([], 50, id="fresh"),
        pytest.param(["--prelude", "37"], 50, id="after-a-first-crash"),
        pytest.param(["--migrate"], 20, id="making-results-failures"),
    ],
)
def test_a_kill_before_any_disk_call_loses_and_doubles_nothing(tmp_path: Path, which: list[str], least: int) -> None:
    command = [sys.executable, "-m", "tests.collector.sweep", str(tmp_path / "sweep"), *which]

    done = subprocess.run(command, env=testkit.environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=True)

    figures = json.loads(done.stdout)
    assert figures["wrong"] == {}, done.stderr
    assert figures["points"] > least


_COLLECT = """
import sys
from pathlib import Path
from tests.collector.shards import fill, settings_for
from tests.support import testkit
testkit.install()
fill(settings_for(Path(sys.argv[1]), num_samples_in_parallel=4, agent={"delay_s": 0.01}, retry={"max_attempts": 60}))
"""


def test_twenty_kills_at_random_moments_record_every_rollout_once(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": n % 2} for n in range(120)])
    settings = settings_for(tmp_path, num_samples_in_parallel=4, agent={"delay_s": 0.01}, retry={"max_attempts": 60})
    chance = random.Random(11)

    for _ in range(20):
        child = subprocess.Popen([sys.executable, "-c", _COLLECT, str(tmp_path)], env=testkit.environment(), cwd=testkit.ROOT)
        time.sleep(0.25 + 0.2 * chance.random())
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    fill(settings)

    found = rollout_ids(RunArtifacts(settings.output_jsonl_fpath).rollouts)
    assert sorted(found, key=lambda name: int(name.split("-")[0])) == [f"{n}-0" for n in range(120)]
    assert states(settings) == {"measured": 120}
    interrupted = sum(asked(tmp_path).values()) - 120
    assert interrupted <= 20 * 4
