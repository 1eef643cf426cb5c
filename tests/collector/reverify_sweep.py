"""A program: kill a regrading before every disk call it makes, go on, and print what was lost, doubled or judged twice.

Forks before any thread exists; that is why it is a program of its own and not part of a test process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collector.artifacts import RunArtifacts
from collector.settings import RunSettings
from tests.collector.points import Sweep, Tried
from tests.collector.regrading import append, by_id, prepared, regrade, write_history
from tests.collector.shards import attempt_of, recorded, rows_of, write_dataset
from tests.support.crash import run_in_fork

#: Histories of the run that is graded, one a task.
_HISTORIES = (["ok"], ["jf(A)", "?"], ["ji(A)"], ["agent"], ["ok"], ["jf(A)"])
#: The same with two results that were flagged as judged by no valid verdict.
_FLAGGED = (["ok"], ["ok, flagged"], ["ji(A)"], ["agent"], ["ok"], ["ok, flagged"])
_ANSWERED = ("0-0", "1-0", "2-0", "4-0", "5-0")
_FAILED_JUDGEMENTS = ("1-0", "2-0", "5-0")


def judge(row: dict[str, Any], text: str, response: dict[str, Any], *, log: str) -> float:
    """A verifier that notes whom it was asked about."""
    del text, response
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{row['_ng_task_index']}-{row['_ng_rollout_index']}\n")
    return 0.5


def judged(directory: Path) -> Counter[str]:
    log = directory / "judged.log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def a_run(directory: Path, template: Path, histories: Sequence[Sequence[str]] = _HISTORIES) -> RunSettings:
    """The run that is graded, in ``directory``: made once, and from then on copied."""
    shutil.rmtree(directory, ignore_errors=True)
    settings = _settings(directory)
    if not template.exists():
        directory.mkdir(parents=True)
        write_dataset(directory / "tasks.jsonl", [{"n": n} for n in range(len(histories))])
        run_in_fork(lambda: _write(settings, histories), 0)
        directory.rename(template)
    shutil.copytree(template, directory)
    return settings


def _settings(directory: Path) -> RunSettings:
    verifier = {
        "type": "python", "function": "tests.collector.reverify_sweep:judge",
        "kwargs": {"log": str(directory / "judged.log")},
    }  # fmt: skip
    return RunSettings.model_validate(
        {
            "input_jsonl_fpath": directory / "tasks.jsonl",
            "output_jsonl_fpath": directory / "run" / "rollouts.jsonl",
            "policy_base_url": "http://127.0.0.1:1/v1",
            "policy_model_name": "nobody",
            "verifier": verifier,
            "retry": {"max_attempts": 20, "backoff_s": 0.001},
        }
    )


def _write(settings: RunSettings, histories: Sequence[Sequence[str]]) -> None:
    artifacts = prepared(settings)
    for index, history in enumerate(histories):
        write_history(artifacts, index, history)


def one_point(directory: Path, fatal: int, which: str) -> Tried:
    """Kill at disk call ``fatal``, go on to the end, and count what went wrong."""
    histories = _FLAGGED if which == "append-flagged" else _HISTORIES
    settings = a_run(directory, directory.with_name("template"), histories)
    source = RunArtifacts(settings.output_jsonl_fpath)
    is_own = which.startswith("append")
    output = source if is_own else RunArtifacts(directory / "new" / "rollouts.jsonl")
    first, again = _commands(settings, output, which)
    if which == "overwrite":
        run_in_fork(first, 0)
        (directory / "judged.log").unlink()
        first = again = lambda: _regrade(settings, output, overwrite=True)
    files = {} if is_own else _contents(source)
    status, _ = run_in_fork(first, fatal)
    calls = judged(directory)
    # A flagged result is none any more when its judge is asked again.
    before = {name: row for name, row in recorded(output).items() if '"invalid_judge_response":true' not in row}
    if which != "overwrite" and run_in_fork(again, 0)[0] != 0:
        return Tried(status != 0, Counter({"going on failed": 1}))
    if which == "overwrite" and status != 0 and run_in_fork(again, 0)[0] != 0:
        return Tried(True, Counter({"replacing again failed": 1}))
    wrong = Counter[str]()
    after, rows = recorded(output), [attempt_of(row) for row in rows_of(output.rollouts)]
    if which != "overwrite":
        wrong["lost"] = sum(after.get(rollout) != row for rollout, row in before.items())
        wrong["judged again"] = sum(judged(directory)[rollout] != calls[rollout] for rollout in before)
    wrong["doubled"] = len(rows) - len(set(rows))
    wrong["missing"] = len(_ANSWERED) - len(after)
    wrong["source changed"] = not is_own and _contents(source) != files
    graded = _ANSWERED if which in {"all", "overwrite"} else _FAILED_JUDGEMENTS
    wrong["not judged"] = sum(by_id(output.rollouts)[name]["reward"] != 0.5 for name in graded)
    wrong["taken over wrongly"] = sum(by_id(output.rollouts)[name]["reward"] != 0.0 for name in _ANSWERED if name not in graded)
    wrong["old counts"] = json.loads(output.coverage.read_bytes())["measured"] != len(_ANSWERED)
    wrong["leftovers"] = len(list(output.rollouts.parent.glob(".*.tmp")))
    return Tried(status != 0, +wrong)


def _commands(settings: RunSettings, output: RunArtifacts, which: str) -> tuple[Callable[[], None], Callable[[], None]]:
    if which.startswith("append"):
        retry = {"retry": {"retry_invalid_judge_responses": True}} if which == "append-flagged" else {}
        return (lambda: append(settings, **retry) and None), (lambda: append(settings, **retry) and None)
    only = {"judge_failed_only": which == "judge-failed-only"}
    return (lambda: _regrade(settings, output, **only)), (lambda: _go_on(settings, output, **only))


def _go_on(settings: RunSettings, output: RunArtifacts, **changes: Any) -> None:
    """What a person does who sees that the command was killed: the same with --resume, without it where nothing is there."""
    _regrade(settings, output, resume=output.manifest.exists(), **changes)


def _regrade(settings: RunSettings, output: RunArtifacts, **changes: Any) -> None:
    regrade(settings.output_jsonl_fpath, output.rollouts, retry={"max_attempts": 20}, **changes)


def _contents(run: RunArtifacts) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.rollouts.parent.iterdir() if path != run.lock}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("which", choices=["all", "judge-failed-only", "append", "append-flagged", "overwrite"])
    args = parser.parse_args()
    sweep = Sweep()
    sweep.run(args.which, lambda fatal: one_point(args.directory / "point", fatal, args.which))
    sweep.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
