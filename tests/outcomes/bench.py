"""One run under test: its dataset, its settings, collector sessions in this process or as ``gym eval run``, and what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from collector.artifacts import RunArtifacts
from collector.collect import CollectResult
from collector.formats.events import Success, encode
from collector.settings import RunSettings
from tests.collector import shards
from tests.support import testkit
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for

PLUGINS = Path(__file__).parent / "plugins"
ACTED = {"type": "acted"}


def install() -> None:
    """Put this folder's plug-ins and the test kit's on the path, where entry points are found."""
    testkit.install()
    if str(PLUGINS) not in sys.path:
        sys.path.append(str(PLUGINS))


def environment() -> dict[str, str]:
    """The environment of a collector process that sees the plug-ins and the tests."""
    # A proxy would answer for hosts that do not exist.
    known = {name: value for name, value in testkit.environment().items() if not name.lower().endswith("_proxy")}
    return {**known, "PYTHONPATH": os.pathsep.join([str(PLUGINS), known["PYTHONPATH"]])}


class Bench:
    """A directory with a dataset and the run that is made of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.artifacts = RunArtifacts(directory / "run" / "rollouts.jsonl")
        self.log = directory / "asked.log"
        #: Settings of every session unless a call changes them.
        self.base: dict[str, Any] = {"agent": ACTED, "verifier": "judged", "num_samples_in_parallel": 1}

    def tasks(self, *rows: dict[str, Any]) -> None:
        """Write the dataset; rows that would be identical are told apart by a number, and a grade of 1 is the default."""
        found = [{"responses_create_params": {"input": "?"}, "n": n, "grade": 1, **row} for n, row in enumerate(rows)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
        (self.directory / "tasks.jsonl").write_bytes(text.encode())

    def ask(self, server: ModelServer | str, *prompts: str, fields: dict[int, dict[str, Any]] | None = None) -> None:
        """Have the tasks answered over HTTP; each prompt is counted by the server under its number."""
        rows = [
            {"responses_create_params": {"input": f"[[task: {n}]] {prompt}"}, "n": n, "grade": 1, **(fields or {}).get(n, {})}
            for n, prompt in enumerate(prompts)
        ]
        (self.directory / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        base_url = server if isinstance(server, str) else server.base_url
        self.base |= {"agent": {"type": "openai_chat"}, "policy_model_name": "test-model", "policy_base_url": base_url}

    def data(self, **changes: Any) -> dict[str, Any]:
        """The settings as a configuration file has them."""
        wanted = {**self.base, **changes}
        if wanted["agent"].get("type") == "acted":
            wanted["agent"] = {"log": str(self.log), **wanted["agent"]}
        wanted["retry"] = {"backoff_s": 0.001, "backoff_max_s": 0.002, **wanted.get("retry", {})}
        return {
            "input_jsonl_fpath": str(self.directory / "tasks.jsonl"),
            "output_jsonl_fpath": str(self.artifacts.rollouts),
            **wanted,
        }

    def settings(self, **changes: Any) -> RunSettings:
        return RunSettings.model_validate(self.data(**changes))

    def fill(self, **changes: Any) -> CollectResult:
        """One collector session in this process."""
        return shards.fill(self.settings(**changes))

    def write_config(self, **changes: Any) -> Path:
        """The settings as a file."""
        path = self.directory / "config.yaml"
        path.write_text(json.dumps(self.data(**changes)))
        return path

    def command(self, config: Path) -> list[str]:
        """The words that start ``gym eval run`` on ``config``."""
        return [sys.executable, "-m", "orchestrate.cli.main", "eval", "run", "--config", str(config)]

    def start(self, **changes: Any) -> subprocess.Popen[str]:
        """``gym eval run`` as a process of its own."""
        return subprocess.Popen(
            self.command(self.write_config(**changes)),
            env=environment(),
            cwd=testkit.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **changes: Any) -> subprocess.CompletedProcess[str]:
        """``gym eval run`` to its end: exit code, what it printed, what it said."""
        process = self.start(**changes)
        out, err = process.communicate(timeout=50)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def states(self, **changes: Any) -> dict[str, int]:
        return shards.states(self.settings(**changes))

    def asked(self) -> dict[str, int]:
        """How often each rollout was asked for, over all sessions."""
        return dict(Counter(self.log.read_text().split())) if self.log.exists() else {}

    def rows(self) -> list[dict[str, Any]]:
        return shards.rows_of(self.artifacts.rollouts)

    def failures(self) -> list[dict[str, Any]]:
        return shards.rows_of(self.artifacts.failures)

    def wait_for_rows(self, number: int) -> None:
        """Return when so many results are recorded."""
        journal = self.artifacts.journal
        wait_for(lambda: journal.exists() and journal.read_bytes().count(b'"event":"success"') >= number)

    def wait_for_calls(self, number: int) -> None:
        """Return when so many calls were made."""
        wait_for(lambda: sum(self.asked().values()) >= number)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        found = shards.rows_of(self.artifacts.journal)
        return [event for event in found if kind in {None, event["event"]}]

    def contents(self) -> dict[str, bytes]:
        """Every file of the run but its lock, which names whoever tried last."""
        files = self.artifacts.rollouts.parent.iterdir()
        return {path.name: path.read_bytes() for path in files if path.is_file() and path != self.artifacts.lock}

    def edit(self, path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
        """Rewrite a file of the run line by line, as damage from outside would."""
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    def add_late_result(self, *, task: int, reward: float, has_event: bool) -> None:
        """Append what session 0 would have written for attempt 0 of ``task`` had it been slow instead of dead."""
        source = next(line for line in shards.rows_of(self.artifacts.inventory) if line["_ng_task_index"] == task)
        late = {**source, "response": {}, "reward": reward, "mask_sample": False}
        line = orjson.dumps({**late, "_ng_run_id": self.run_id(), "_ng_session": 0}) + b"\n"
        offset = self.artifacts.rollouts.stat().st_size
        with self.artifacts.rollouts.open("ab") as file:
            file.write(line)
        if has_event:
            seq = sum(event["session"] == 0 for event in self.events())
            event = Success(
                run_id=self.run_id(), session=0, seq=seq, at="", rollout_id=f"{task}-0", attempt_index=0, offset=offset,
                length=len(line), checksum=zlib.crc32(line), reward=reward,
            )  # fmt: skip
            with self.artifacts.journal.open("ab") as file:
                file.write(encode(event))

    def run_id(self) -> str:
        return json.loads(self.artifacts.manifest.read_bytes())["run_id"]

    def make_legacy(self, rows: list[dict[str, Any]], failures: list[dict[str, Any]]) -> None:
        """Turn the prepared run into what NeMo Gym leaves: no manifest, no journal, these rows and failures."""
        shards.prepare(self.settings())
        self.artifacts.manifest.unlink()
        self.artifacts.journal.unlink()
        for path, found in ((self.artifacts.rollouts, rows), (self.artifacts.failures, failures)):
            path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in found))


def row(task: int, **fields: Any) -> dict[str, Any]:
    """A row with the identity of repeat 0 of ``task``."""
    return {"_ng_task_index": task, "_ng_rollout_index": 0, **fields}
