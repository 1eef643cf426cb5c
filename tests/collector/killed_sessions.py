"""A program: many collector sessions on one shard, each killed at a random moment, then one to the end; prints the figures.

Sessions are forked from this process, which has everything imported and no thread: a session then costs milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.settings import RunSettings
from tests.collector.shards import asked, fill, prepare, recorded, rollout_ids, rows_of, settings_for, states, write_dataset
from tests.support import testkit

#: Sessions between two looks at what is recorded.
_LOOK = 50
#: Requests in flight in a session that will be killed.
_IN_FLIGHT = 4


class Record:
    """What was recorded when last looked at, and how often that was broken since."""

    def __init__(self, settings: RunSettings, directory: Path) -> None:
        self._settings, self._directory = settings, directory
        self._rows: dict[str, str] = {}
        self._asked: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()

    def look(self) -> int:
        """Compare with the last look; the number of recorded rollouts."""
        rows, calls = recorded(RunArtifacts(self._settings.output_jsonl_fpath)), asked(self._directory)
        self.wrong["changed or lost"] += sum(rows.get(rollout) != row for rollout, row in self._rows.items())
        self.wrong["asked again"] += sum(calls[rollout] != self._asked[rollout] for rollout in self._rows)
        self._rows, self._asked = rows, calls
        return len(rows)


def killed_session(settings: RunSettings, after_s: float) -> bool:
    """One session in a fork, killed after so many seconds; whether the kill met it alive."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fill(settings)
            status = 0
        except GymEvalError as error:
            print(error, file=sys.stderr)
        finally:
            os._exit(status)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a session ended with an error")
    return os.WIFSIGNALED(status)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=5000)
    parser.add_argument("--longest-s", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    testkit.install()
    directory: Path = args.directory
    directory.mkdir(parents=True, exist_ok=True)
    tasks = [{"n": n, "grade": n % 2, "mask": n % 10 == 0} for n in range(args.rollouts)]
    write_dataset(directory / "tasks.jsonl", tasks)
    # An answer takes so long that even sessions that start at once leave the last ones work to do: a quarter more than all need.
    delay_s = 1.25 * _IN_FLIGHT * args.longest_s / 2 * args.sessions / args.rollouts
    settings = settings_for(
        directory, num_samples_in_parallel=_IN_FLIGHT, agent={"delay_s": delay_s}, retry={"max_attempts": 1_000_000}
    )
    prepare(settings)
    chance, record, begun = random.Random(args.seed), Record(settings, directory), time.monotonic()
    killed, still_open = 0, 0
    for number in range(args.sessions):
        killed += killed_session(settings, chance.random() * args.longest_s)
        if number % _LOOK == _LOOK - 1:
            still_open = number + 1 if record.look() < args.rollouts else still_open
    fill(settings.model_copy(update={"num_samples_in_parallel": 256}))
    record.look()
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    found = rollout_ids(artifacts.rollouts)
    record.wrong["doubled"] = len(found) - len(set(found))
    record.wrong["missing"] = args.rollouts - len(set(found))
    dispatched = Counter(event["rollout_id"] for event in rows_of(artifacts.journal) if event["event"] == "dispatched")
    calls = asked(directory)
    record.wrong["asked without a dispatch"] = sum(calls[name] > dispatched[name] for name in calls)
    figures = {
        "sessions": args.sessions, "killed": killed, "killed while work was left": still_open, "rollouts": args.rollouts,
        "states": states(settings), "attempts": dispatched.total(), "requests": calls.total(),
        "seconds": round(time.monotonic() - begun), "wrong": dict(+record.wrong),
    }  # fmt: skip
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
