"""Saved answers graded by the servers of a NeMo Gym: what is sent, what comes back, and which servers are trusted with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from tests.collector.gym_grading import result_of, saved, server, write_files
from tests.collector.regrading import append, by_id, regrade
from tests.collector.shards import rows_of
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import NemoStub


def test_the_materialized_row_and_the_saved_answer_are_sent(bench: NemoBench, stub: NemoStub, tmp_path: Path) -> None:
    artifacts = saved(bench, {"expected": 7})

    regrade(artifacts.rollouts, tmp_path / "new.jsonl", **server(stub))

    (body,) = stub.verified
    asked = rows_of(artifacts.inventory)[0]
    assert body == {**asked, "response": by_id(artifacts.rollouts)["0-0"]["response"]}
    assert by_id(tmp_path / "new.jsonl")["0-0"]["reward"] == 1.0
    assert stub.asked["POST /run"] == 0


def test_what_an_answer_left_behind_is_sent_with_it(bench: NemoBench, stub: NemoStub, tmp_path: Path) -> None:
    artifacts = saved(bench, {})
    line = rows_of(artifacts.rollouts)[0]
    left = {"deliverables_dir": "/kept/0-0", "reference_ids": ["a"]}
    files = write_files(tmp_path / "files", [{**line, **left}], [], inventory=artifacts.inventory)

    regrade(files, tmp_path / "new.jsonl", **server(stub))

    assert {key: stub.verified[0].get(key) for key in left} == left


@pytest.mark.parametrize("status", [500, 503, 404])
def test_one_error_of_a_server_fails_one_rollout_and_keeps_its_answer(
    bench: NemoBench, stub: NemoStub, tmp_path: Path, status: int
) -> None:
    artifacts = saved(bench, {}, {"stub": {"verify": {"status": status}}}, {})
    output = RunArtifacts(tmp_path / "new.jsonl")

    result, _ = regrade(artifacts.rollouts, output.rollouts, retry={"max_attempts": 2}, **server(stub))

    assert {name: row["reward"] for name, row in by_id(output.rollouts).items()} == {"0-0": 1.0, "2-0": 1.0}
    assert result.coverage.failures_by_kind == {"judge_failed": 1}
    failures = rows_of(output.failures)
    assert [row["_ng_failure_http_status"] for row in failures] == [status, status]
    assert [row["response"] for row in failures] == [by_id(artifacts.rollouts)["1-0"]["response"]] * 2
    # One request an attempt: what answers 503 may have graded.
    assert len(stub.verified) == 4


def test_an_error_that_passes_costs_an_attempt_and_no_rollout(bench: NemoBench, stub: NemoStub, tmp_path: Path) -> None:
    artifacts = saved(bench, {"stub": {"verify": {"status": 500, "times": 1}}})

    result, _ = regrade(artifacts.rollouts, tmp_path / "new.jsonl", **server(stub))

    assert (result.coverage.measured, result.coverage.attempts) == (1, 2)


@pytest.mark.parametrize(
    ("reply", "failure_class"),
    [
        pytest.param({"reward": None}, "judge_failed", id="no-number"),
        pytest.param({"reward": True}, "judge_failed", id="a-truth-value"),
        pytest.param({"_ng_failure_class": "judge_failed", "failure_reason": "judge down"}, "judge_failed", id="judge"),
        pytest.param({"_ng_failure_class": "judge_invalid", "failure_reason": "?"}, "judge_invalid", id="invalid"),
        pytest.param({"_ng_no_persist": True}, "judge_failed", id="not-to-be-recorded"),
    ],
)
def test_a_reply_without_a_verdict_is_a_failed_judgement(
    bench: NemoBench, stub: NemoStub, tmp_path: Path, reply: dict[str, Any], failure_class: str
) -> None:
    artifacts = saved(bench, {"stub": {"verify": {"reply": reply}}})
    output = RunArtifacts(tmp_path / "new.jsonl")

    regrade(artifacts.rollouts, output.rollouts, retry={"max_attempts": 1}, **server(stub))

    (failure,) = rows_of(output.failures)
    assert failure["_ng_failure_class"] == failure_class
    assert failure["response"] == by_id(artifacts.rollouts)["0-0"]["response"]


def test_the_servers_that_graded_a_run_are_asked_again_unless_somebody_else_is_named(
    bench: NemoBench, stub: NemoStub, tmp_path: Path
) -> None:
    artifacts = saved(bench, {})

    regrade(artifacts.rollouts, tmp_path / "new.jsonl")

    assert by_id(tmp_path / "new.jsonl")["0-0"]["reward"] == 1.0
    assert stub.asked["POST /verify"] == 1


def test_a_head_server_alone_is_who_grades(stub: NemoStub, tmp_path: Path) -> None:
    """NeMo Gym's own words: ``+head_server.port=12000``."""
    files = write_files(tmp_path / "files", [result_of(0)], [])

    regrade(files, tmp_path / "new.jsonl", head_server={"port": stub.head_port})

    assert by_id(tmp_path / "new.jsonl")["0-0"]["reward"] == 1.0


INVALID = {"verify": {"reply": {"reward": 0.0, "invalid_judge_response": True}}}


class TestInvalidJudgeResponses:
    @pytest.mark.parametrize(
        ("retryable", "failure_class", "terminal"),
        [pytest.param(True, "judge_invalid", False, id="retryable"), pytest.param(False, "permanent", True, id="permanent")],
    )
    def test_a_flagged_verdict_is_a_failure_where_it_is_to_be_tried_again(
        self, bench: NemoBench, stub: NemoStub, tmp_path: Path, retryable: bool, failure_class: str, terminal: bool
    ) -> None:
        artifacts = saved(bench, {"stub": INVALID})
        output = RunArtifacts(tmp_path / "new.jsonl")
        retry = {"retry_invalid_judge_responses": True, "max_attempts": 2}

        regrade(artifacts.rollouts, output.rollouts, retry=retry, invalid_judge_retryable=retryable, **server(stub))

        found = [(row["_ng_failure_class"], row["_ng_failure_terminal"], "reward" in row) for row in rows_of(output.failures)]
        assert found == [(failure_class, terminal, False)] * (2 if retryable else 1)
        assert rows_of(output.rollouts) == []

    def test_otherwise_it_is_a_result_that_says_so(self, bench: NemoBench, stub: NemoStub, tmp_path: Path) -> None:
        artifacts = saved(bench, {"stub": INVALID})

        regrade(artifacts.rollouts, tmp_path / "new.jsonl", **server(stub))

        row = by_id(tmp_path / "new.jsonl")["0-0"]
        assert (row["reward"], row["invalid_judge_response"]) == (0.0, True)

    @pytest.mark.parametrize("into", ["itself", "a-run-of-its-own"])
    def test_flagged_results_of_a_run_are_judged_again(
        self, bench: NemoBench, stub: NemoStub, tmp_path: Path, into: str
    ) -> None:
        """One result is flagged, the other is not: one grading, and the other stays as it is."""
        bench.tasks({"stub": {"mode": "reply", "reply": {"reward": 0.0, "invalid_judge_response": True}}}, {})
        settings = bench.settings(verifier="environment")
        bench.fill(verifier="environment")
        output = settings.output_jsonl_fpath if into == "itself" else tmp_path / "new.jsonl"

        if into == "itself":
            append(settings, retry={"retry_invalid_judge_responses": True}, **server(stub))
        else:
            words: dict[str, Any] = {"judge_failed_only": True, "retry_invalid_judge_responses": True}
            regrade(settings.output_jsonl_fpath, output, **words, **server(stub))

        assert {name: row["reward"] for name, row in by_id(output).items()} == {"0-0": 1.0, "1-0": 1.0}
        assert [body["_ng_task_index"] for body in stub.verified] == [0]
        assert stub.asked["POST /run"] == 2
