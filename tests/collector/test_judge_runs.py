"""Whole runs that a judge grades: what it costs is told apart, what it fails at is kept, and who it is belongs to the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from tests.collector.shards import rows_of
from tests.support import testkit
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for

KEY = "sk-judge-key-000111"
#: The judge's words are the row's, so that each row decides its verdict.
PROMPT = "[[task: {n}]] [[answer: VERDICT: {say}]] {how} {model_answer}"


class Judged:
    """A dataset, a model and a judge, each served by a process of its own, and ``gym eval`` on them."""

    def __init__(self, directory: Path, policy: ModelServer, judge: ModelServer) -> None:
        self.directory, self.policy, self.judge = directory, policy, judge
        self.artifacts = RunArtifacts(directory / "out" / "rollouts.jsonl")

    def tasks(self, *rows: dict[str, Any]) -> None:
        made = [
            {
                "responses_create_params": {"input": f"[[task: {n}]] {row.pop('ask', '')}"},
                "n": n, "say": "correct", "how": "", **row,
            }
            for n, row in enumerate(rows)
        ]  # fmt: skip
        (self.directory / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))

    def config(self, *, verifier: dict[str, Any] | None = None, **changes: Any) -> Path:
        data = {
            "input_jsonl_fpath": str(self.directory / "tasks.jsonl"),
            "output_jsonl_fpath": str(self.artifacts.rollouts),
            "policy_model_name": "test-model",
            "policy_base_url": self.policy.base_url,
            "num_samples_in_parallel": 4,
            "verifier": {
                "type": "judge", "base_url": self.judge.base_url, "model": "test-model", "api_key_env": "JUDGE_KEY",
                "prompt": {"user": PROMPT}, **(verifier or {}),
            },
            **changes,
        }  # fmt: skip
        data["retry"] = {"backoff_s": 0.01, "max_attempts": 2, **changes.get("retry", {})}
        path = self.directory / "config.yaml"
        path.write_text(json.dumps(data))
        return path

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrate.cli.main", "eval", *words],
            env={**testkit.environment(), "JUDGE_KEY": KEY},
            cwd=testkit.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def gym(self, *words: str) -> tuple[int, str]:
        """Exit code and all that was printed."""
        process = self.start(*words)
        out, err = process.communicate(timeout=50)
        return process.returncode, out + err

    def run(self, **changes: Any) -> tuple[int, str]:
        return self.gym("run", "--config", str(self.config(**changes)))


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Judged]:
    for name in ("policy", "judge"):
        (tmp_path / name).mkdir()
    with ModelServer(tmp_path / "policy") as policy, ModelServer(tmp_path / "judge", api_key=KEY) as judge:
        yield Judged(tmp_path, policy, judge)


def test_verdicts_become_scores_and_the_judges_tokens_are_told_apart_everywhere(judged: Judged) -> None:
    judged.tasks({}, {"say": "incorrect"}, {})

    code, said = judged.run()

    rows = rows_of(judged.artifacts.rollouts)
    assert (code, sorted(row["reward"] for row in rows)) == (0, [0.0, 1.0, 1.0])
    spent = [(row["judge_input_tokens"], row["judge_output_tokens"]) for row in rows]
    assert f"judge {sum(s for s, _ in spent)} tokens in, {sum(t for _, t in spent)} out" in said
    metrics = json.loads(judged.artifacts.aggregate.read_bytes())[0]["agent_metrics"]
    assert metrics["mean/judge_output_tokens"] == 2.0
    assert metrics["mean/output_tokens"] != metrics["mean/judge_output_tokens"]
    assert (
        f"judge test-model: incorrect ({spent[0][0]} tokens in" in judged.gym("why", str(judged.artifacts.rollouts), "1-0")[1]
    )
    report = judged.directory / "report.html"
    judged.gym("report", str(judged.artifacts.rollouts), "-o", str(report))
    assert "tokens of a judgement" in report.read_text()


def test_the_key_of_the_judge_is_in_no_file_and_in_no_message(judged: Judged) -> None:
    judged.tasks({}, {"how": "[[mode: 401]]"})

    _, said = judged.run()

    assert KEY not in said
    written = [path for path in (judged.directory / "out").iterdir() if path.is_file()]
    assert len(written) > 5
    assert [path.name for path in written if KEY.encode() in path.read_bytes()] == []


def test_failures_of_the_judge_keep_the_answer_and_end_the_run_incomplete(judged: Judged) -> None:
    judged.tasks({}, {"how": "[[mode: 500]]"}, {"say": "hard to tell"})

    code, said = judged.run()

    failures = rows_of(judged.artifacts.failures)
    assert code == 6
    assert "judge_failed 1" in said
    assert sorted((row["n"], row["_ng_failure_class"]) for row in failures) == [
        (1, "judge_failed"), (1, "judge_failed"), (2, "judge_invalid"), (2, "judge_invalid"),
    ]  # fmt: skip
    assert all(row["response"]["output"] and "reward" not in row for row in failures)
    assert next(row for row in failures if row["n"] == 2)["judge"]["text"] == "VERDICT: hard to tell"


def test_a_judgement_longer_than_the_attempt_may_take_keeps_the_answer(judged: Judged) -> None:
    judged.tasks({"how": "[[mode: silence]]"})

    judged.run(timeouts={"attempt_s": 1}, retry={"max_attempts": 1})

    (failure,) = rows_of(judged.artifacts.failures)
    assert failure["_ng_failure_class"] == "judge_failed"
    assert failure["response"]["output"]


def test_an_unset_key_is_one_line_before_anything_is_asked(judged: Judged) -> None:
    judged.tasks({})

    code, said = judged.run(verifier={"api_key_env": "NO_SUCH_KEY"})

    assert code == 2
    assert "verifier.api_key_env: the environment variable NO_SUCH_KEY is not set" in said
    assert judged.policy.requests() == []


@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param({"model": "other-model"}, "verifier.model", id="judge"),
        pytest.param({"prompt": {"user": PROMPT + " Be strict."}}, "verifier.prompt.user", id="prompt"),
        pytest.param({"parse": {"how": "regex", "pattern": "(correct)"}}, "verifier.parse", id="rule"),
        pytest.param({"labels": {"correct": 1, "incorrect": 0.5}}, "verifier.labels.incorrect", id="labels"),
        pytest.param({"parameters": {"temperature": 1}}, "verifier.parameters", id="sampling"),
    ],
)
def test_another_judgement_is_another_experiment(judged: Judged, change: dict[str, Any], key: str) -> None:
    judged.tasks({})
    judged.run()

    code, said = judged.run(verifier=change)

    assert (code, key in said) == (4, True)
    assert len(judged.judge.requests()) == 1


def test_where_the_judge_answers_and_how_long_it_may_take_do_not_matter(judged: Judged) -> None:
    judged.tasks({})
    judged.run()

    code, _ = judged.run(verifier={"base_url": "http://127.0.0.1:1/v1", "api_key_env": None, "timeout_s": 5, "max_tries": 1})

    assert code == 0


def test_a_prompt_in_a_file_counts_by_its_words(judged: Judged, tmp_path: Path) -> None:
    file = tmp_path / "prompt.yaml"
    file.write_text(json.dumps({"user": PROMPT}))
    judged.tasks({})
    judged.run()

    same = judged.run(verifier={"prompt": str(file)})
    file.write_text(json.dumps({"user": PROMPT + " Be strict."}))
    other = judged.run(verifier={"prompt": str(file)})

    assert (same[0], other[0]) == (0, 4)


def test_a_judgement_cut_off_by_a_stop_that_takes_the_judge_along_is_an_interruption(judged: Judged) -> None:
    """A preempted job's judge gets the same signal; nothing is booked against the task, and the next run asks anew."""
    judged.tasks({"how": "[[mode: silence x1]]"})
    process = judged.start("run", "--config", str(judged.config()))
    wait_for(lambda: bool(judged.judge.requests()))

    os.kill(process.pid, signal.SIGTERM)
    judged.judge.kill()
    process.communicate(timeout=50)
    before = rows_of(judged.artifacts.failures)
    judged.judge.start()
    code, _ = judged.run()

    assert (before, code) == ([], 0)
    assert len(rows_of(judged.artifacts.rollouts)) == 1


def test_a_judge_that_fails_for_everything_stops_the_run(judged: Judged) -> None:
    judged.tasks(*({"how": "[[mode: 500]]"} for _ in range(60)))

    code, said = judged.run(retry={"max_attempts": 9})

    assert code == 5
    assert "Mend the verifier or its judge, then resume" in said
    assert "gym eval reverify --judge-failed-only" in said
    assert f"gym eval run: {judged.artifacts.rollouts}: 20 attempts in a row failed alike: the judge: " in said
    assert len(judged.judge.requests()) < 60


def test_the_answers_of_a_failed_judge_are_judged_once_it_is_mended(judged: Judged) -> None:
    """From the command line: no answer is asked for again, and the run is complete."""
    judged.tasks({"how": "[[mode: 500 x2]]"}, {})
    judged.run()
    asked = len(judged.policy.requests())

    rollouts = str(judged.artifacts.rollouts)
    refused = judged.gym("reverify", "--rollouts", rollouts, "--judge-failed-only", "--append")
    code, said = judged.gym("reverify", "--rollouts", rollouts, "--judge-failed-only", "--append", "+retry.max_attempts=3")

    assert refused[0] == 8
    assert "its attempts are used up (2 dispatched): raise retry.max_attempts: 0-0" in refused[1]
    assert (code, "score     1 (2/2)" in said) == (0, True)
    assert len(judged.policy.requests()) == asked
    assert judged.run()[0] == 0


def test_a_regrading_killed_by_the_kernel_goes_on_without_judging_twice(judged: Judged, tmp_path: Path) -> None:
    """SIGKILL when the fourth judgement arrives: three are recorded, and the other three are asked for by the next command."""
    judged.tasks(*({} for _ in range(6)))
    judged.run(verifier={"type": "judge"})
    (tmp_path / "again").mkdir()
    pid_file = tmp_path / "pid"
    output = tmp_path / "again" / "rollouts.jsonl"
    words = ["reverify", "--rollouts", str(judged.artifacts.rollouts), "-o", str(output), "--concurrency", "1"]

    with ModelServer(tmp_path / "again", kill_pid_at=4, kill_pid_file=pid_file, api_key=KEY) as judge:
        words.append(f"+verifier.base_url={judge.base_url}")
        killed = judged.start(*words)
        pid_file.write_text(str(killed.pid))
        killed.communicate(timeout=50)
        code, said = judged.gym(*words, "--resume")

        assert (killed.returncode, code) == (-signal.SIGKILL, 0), said
        # The fourth was asked for twice: its first judgement was never recorded.
        assert sorted(judge.counts().values()) == [1, 1, 1, 1, 1, 2]
    assert sorted(row["n"] for row in rows_of(output)) == list(range(6))
