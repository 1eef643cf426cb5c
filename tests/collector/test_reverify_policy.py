"""Which answers of failed judgements are judged again: five histories and their kin, with every call counted at its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from collector.errors import NoTasksError
from collector.settings import RunSettings
from tests.collector.regrading import append, by_id, prepared, regrade, write_history
from tests.collector.shards import states, write_dataset
from tests.support.model_server import ModelServer
from tests.support.nemo_stub import AGENT, NemoStub


class Calls(NamedTuple):
    """Requests that arrived: at the judge or at ``/verify``, and at who answers."""

    judge: int
    agent: int


class Served(Protocol):
    """A run whose servers are up."""

    settings: RunSettings

    def calls(self) -> Calls: ...


class JudgeModel:
    """A run that asks one model and has another judge."""

    def __init__(self, directory: Path, policy: ModelServer, judge: ModelServer) -> None:
        self._policy, self._judge = policy, judge
        write_dataset(directory / "tasks.jsonl", [{"n": 0}, {"n": 1}])
        verifier = {
            "type": "judge", "base_url": judge.base_url, "model": "test-model",
            "prompt": {"user": "[[answer: VERDICT: correct]] {model_answer}"},
        }  # fmt: skip
        self.settings = RunSettings.model_validate(
            {
                "input_jsonl_fpath": directory / "tasks.jsonl",
                "output_jsonl_fpath": directory / "run" / "rollouts.jsonl",
                "policy_model_name": "test-model",
                "policy_base_url": policy.base_url,
                "verifier": verifier,
                "retry": {"max_attempts": 5, "backoff_s": 0.001},
            }
        )

    def calls(self) -> Calls:
        return Calls(len(self._judge.requests()), len(self._policy.requests()))


class GymServers:
    """A run that the servers of a NeMo Gym answer and grade."""

    def __init__(self, directory: Path, stub: NemoStub) -> None:
        self._stub = stub
        agent = {"agent_ref": {"type": "responses_api_agents", "name": AGENT}}
        write_dataset(directory / "tasks.jsonl", [{"n": 0, **agent}, {"n": 1, **agent}])
        self.settings = RunSettings.model_validate(
            {
                "input_jsonl_fpath": directory / "tasks.jsonl",
                "output_jsonl_fpath": directory / "run" / "rollouts.jsonl",
                "agent": {"type": "nemo_gym", "head_server": {"port": stub.head_port}},
                "verifier": "environment",
                "retry": {"max_attempts": 5, "backoff_s": 0.001},
            }
        )

    @property
    def verifier(self) -> dict[str, Any]:
        return {"type": "gym_server", "head_server": {"port": self._stub.head_port}}

    def calls(self) -> Calls:
        return Calls(self._stub.asked["POST /verify"], self._stub.asked["POST /run"])


@pytest.fixture(params=["judge", "gym-server"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    if request.param == "gym-server":
        with NemoStub() as stub:
            yield GymServers(tmp_path, stub)
        return
    for name in ("policy", "judge"):
        (tmp_path / name).mkdir()
    with ModelServer(tmp_path / "policy") as policy, ModelServer(tmp_path / "judge") as judge:
        yield JudgeModel(tmp_path, policy, judge)


def grader(served: Served) -> dict[str, Any]:
    return {"verifier": served.verifier} if isinstance(served, GymServers) else {}


TABLE = [
    pytest.param(["jf(A)", "?"], 1, None, id="answer-then-interrupted"),
    pytest.param(["jf(A)", "?", "?"], 1, None, id="n28-answer-then-interrupted-twice"),
    pytest.param(["jf(A)", "jf", "?"], 0, "judge_failed, which left no answer", id="n30-a-newer-failure-without-an-answer"),
    pytest.param(["jf(A)", "agent", "?"], 0, "agent_run_error, which left no answer", id="n29-a-newer-failure-of-the-agent"),
    pytest.param(["?", "ok", "late:jf(A)"], 0, None, id="n13-a-late-failure-of-an-older-attempt"),
    pytest.param(["jf(A)"], 1, None, id="the-latest-attempt"),
    pytest.param(["ji(A)", "?"], 1, None, id="an-invalid-judgement"),
    pytest.param(["jf(A)", "jf(A)", "?"], 1, None, id="the-newer-of-two"),
    pytest.param(["jf(A)!"], 0, "terminal", id="n31-terminal-in-the-latest-state"),
    pytest.param(["jf(A)", "?", "?", "?", "?"], 0, "attempts are used up", id="no-attempt-left"),
    pytest.param(["?"], 0, "interrupted", id="never-an-answer"),
    pytest.param([], 0, "never tried", id="never-tried"),
]


@pytest.mark.parametrize(("history", "judged", "warning"), TABLE)
def test_recorded_into_the_run_itself_the_latest_recorded_outcome_decides(
    served: Served, history: list[str], judged: int, warning: str | None
) -> None:
    """One new attempt with the saved answer, or none and a warning that names the rollout; who answers is never asked."""
    artifacts = prepared(served.settings)
    write_history(artifacts, 0, history)
    write_history(artifacts, 1, ["ok"])
    before = artifacts.rollouts.read_bytes(), artifacts.journal.read_bytes()

    result, warned = append(served.settings, **grader(served))

    assert served.calls() == Calls(judge=judged, agent=0)
    assert [line for line in warned if warning is not None and warning in line and "0-0" in line] == warned
    assert bool(warned) == (warning is not None)
    if not judged:
        assert (result.has_begun, artifacts.rollouts.read_bytes(), artifacts.journal.read_bytes()) == (False, *before)
        return
    row = by_id(artifacts.rollouts)["0-0"]
    assert (row["reward"], row["response"]["output"][0]["content"][0]["text"]) == (1.0, "A")
    assert row["_ng_attempt_index"] == len(history)
    assert states(served.settings) == {"measured": 2}


@pytest.mark.parametrize(("history", "judged", "warning"), TABLE)
def test_into_a_run_of_its_own_the_same_answers_are_judged_and_results_taken_over(
    served: Served, tmp_path: Path, history: list[str], judged: int, warning: str | None
) -> None:
    artifacts = prepared(served.settings)
    write_history(artifacts, 0, history)
    write_history(artifacts, 1, ["ok"])
    files = {path: path.read_bytes() for path in artifacts.rollouts.parent.iterdir() if path != artifacts.lock}
    output = tmp_path / "new" / "rollouts.jsonl"

    def run() -> list[str]:
        changes = {"judge_failed_only": True, "retry": {"max_attempts": 5}, **grader(served)}
        return regrade(artifacts.rollouts, output, **changes)[1]

    if judged:
        warned = run()
        found = by_id(output)
        assert (found["0-0"]["reward"], found["1-0"]["reward"]) == (1.0, 0.0)
        assert found["1-0"]["response"]["output"][0]["content"][0]["text"] == "fresh"
        assert warned == []
    else:
        with pytest.raises(NoTasksError):
            run()
        assert not output.exists()

    assert served.calls() == Calls(judge=judged, agent=0)
    assert files == {path: path.read_bytes() for path in artifacts.rollouts.parent.iterdir() if path != artifacts.lock}
    del warning
