"""Works under a shard's lock that can be overtaken, each in a directory of its own, and what must hold of it afterwards."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from collector.artifacts import RunArtifacts
from collector.settings import RunSettings
from collector.shard.store import RolloutStore
from tests.collector.regrading import regrade
from tests.collector.reverify_sweep import a_run, judged
from tests.collector.shards import asked, fill, recorded, rollout_ids, rows_of, settings_for, states, write_dataset
from tests.support.crash import run_in_fork

_TASKS = [{"n": 0, "grade": 1}, {"n": 1, "grade": 0}, {"n": 2, "grade": 1, "fail": 1}]


class Case(ABC):
    """One run directory, the work on it that is overtaken and repeated, and what was wrong with it."""

    artifacts: RunArtifacts

    def __init__(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        self.directory = directory
        self.wrong: Counter[str] = Counter()

    @abstractmethod
    def work(self) -> None:
        """What is stopped, and what its successor does."""

    @abstractmethod
    def asked(self) -> Counter[str]:
        """How often each rollout was asked for, or judged."""

    @abstractmethod
    def judge(self, before: dict[str, str], calls: Counter[str], asked_by: Counter[str] | None = None) -> None:
        """Whether the run is whole, and what had been recorded by ``before`` stands and was not asked again.

        ``asked_by``: what had been asked when the last owner of the shard ended. One that is continued after that may send
        what it had dispatched before it was stopped.
        """

    def recorded(self) -> dict[str, str]:
        """Every rollout with a recorded result, and its row."""
        return recorded(self.artifacts)

    def rob(self) -> None:
        """Remove the lock file under its owner."""
        self.artifacts.lock.unlink(missing_ok=True)

    def content(self) -> dict[str, bytes]:
        """What the files hold; the note in the lock is for people, and a temporary file is nobody's."""
        files = self.artifacts.rollouts.parent.iterdir() if self.artifacts.rollouts.parent.exists() else []
        return {path.name: path.read_bytes() for path in files if path != self.artifacts.lock and path.suffix != ".tmp"}

    def expect(self, what: str, *, right: bool) -> None:
        self.wrong[what] += not right

    def expect_sound(self) -> None:
        """The files say nothing twice, nothing late, and need no repair."""
        found = rollout_ids(self.artifacts.rollouts)
        self.expect("doubled", right=len(found) == len(set(found)))
        with RolloutStore.read(self.artifacts) as store:
            self.expect("late", right=store.history.late_events == store.repairs.ignored_rows == 0)
            self.expect("unrepaired", right=not (store.repairs.lines or store.repairs.recovered or store.repairs.cuts))


class Fresh(Case):
    """A collector on a run that is not there yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True)
        write_dataset(directory / "tasks.jsonl", _TASKS)
        self.settings = self._settings()
        self.artifacts = RunArtifacts(self.settings.output_jsonl_fpath)

    def _settings(self, **changes: Any) -> RunSettings:
        return settings_for(self.directory, num_samples_in_parallel=2, retry={"max_attempts": 6}, **changes)

    def work(self) -> None:
        fill(self.settings)

    def asked(self) -> Counter[str]:
        return asked(self.directory)

    def judge(self, before: dict[str, str], calls: Counter[str], asked_by: Counter[str] | None = None) -> None:
        calls_now = self.asked() if asked_by is None else asked_by
        after = self.recorded()
        self.expect("lost", right=all(after.get(rollout) == row for rollout, row in before.items()))
        self.expect("asked again", right=all(calls_now[rollout] == calls[rollout] for rollout in before))
        dispatched = Counter(event["rollout_id"] for event in rows_of(self.artifacts.journal) if event["event"] == "dispatched")
        self.expect("asked without a dispatch", right=not self.asked() - dispatched)
        self.expect("not whole", right=states(self.settings) == {"measured": len(_TASKS)})
        self.expect_sound()


class Imported(Fresh):
    """Files of NeMo Gym, both with an unfinished last line, taken over and gone on with."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        run_in_fork(lambda: fill(self._settings(limit=3)) and None, 0)
        for path in (self.artifacts.manifest, self.artifacts.journal, self.artifacts.coverage, directory / "asked.log"):
            path.unlink()
        done = [{"_ng_task_index": n, "_ng_rollout_index": 0, "reward": 1.0, "response": {}} for n in range(2)]
        failure = {"_ng_task_index": 2, "_ng_rollout_index": 0, "_ng_failure_class": "agent_run_error"}
        self.artifacts.rollouts.write_bytes(orjson.dumps(done[0]) + b"\n" + orjson.dumps(done[1])[:20])
        self.artifacts.failures.write_bytes(orjson.dumps(failure))
        self.settings = self._settings(allow_unsafe_resume=True)


class Overridden(Fresh):
    """A run whose settings are no longer its own, which is accepted and noted in its manifest."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        first = settings_for(directory, num_samples_in_parallel=2, retry={"max_attempts": 1}, policy_model_name="a")
        run_in_fork(lambda: fill(first) and None, 0)
        self.settings = self._settings(policy_model_name="b", allow_unsafe_resume=True)


class Regraded(Case):
    """Saved answers graded into a run of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.settings = a_run(directory, directory.with_name("template"))
        self.artifacts = RunArtifacts(directory / "new" / "rollouts.jsonl")

    def work(self) -> None:
        self.regrade(resume=self.artifacts.manifest.exists())

    def regrade(self, **how: bool) -> None:
        regrade(self.settings.output_jsonl_fpath, self.artifacts.rollouts, retry={"max_attempts": 20}, **how)

    def asked(self) -> Counter[str]:
        return judged(self.directory)

    def judge(self, before: dict[str, str], calls: Counter[str], asked_by: Counter[str] | None = None) -> None:
        calls_now, after = self.asked() if asked_by is None else asked_by, self.recorded()
        self.expect("lost", right=all(after.get(rollout) == row for rollout, row in before.items()))
        self.expect("judged again", right=all(calls_now[rollout] == calls[rollout] for rollout in before))
        self.expect_whole()

    def expect_whole(self) -> None:
        with RolloutStore.read(self.artifacts) as store:
            counts = store.coverage(self.settings.retry).states
        self.expect(
            "not whole", right={state.value: count for state, count in counts.items() if count} == {"measured": 5, "failed": 1}
        )
        self.expect_sound()


class Replaced(Regraded):
    """Saved answers graded in place of an older regrading, which has results of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        run_in_fork(self.regrade, 0)

    def work(self) -> None:
        self.regrade(overwrite=True)

    def judge(self, before: dict[str, str], calls: Counter[str], asked_by: Counter[str] | None = None) -> None:
        del before, calls, asked_by
        self.expect_whole()


CASES: dict[str, type[Case]] = {
    "fresh": Fresh,
    "imported": Imported,
    "overridden": Overridden,
    "regraded": Regraded,
    "replaced": Replaced,
}
