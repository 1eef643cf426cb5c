"""Saved answers graded by the servers of a NeMo Gym: what is sent, what comes back, and which servers are trusted with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.agents.nemo_gym.head import forget
from collector.artifacts import RunArtifacts
from collector.errors import ConfigError, IdentityError, RefusedError, UnavailableError
from collector.manifest import read_manifest
from tests.collector.regrading import append, by_id, prepared, regrade, write_history
from tests.collector.shards import rows_of
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import NemoStub


@pytest.fixture
def stub() -> Iterator[NemoStub]:
    with NemoStub() as servers:
        yield servers


@pytest.fixture
def bench(tmp_path: Path, stub: NemoStub) -> NemoBench:
    return NemoBench(tmp_path, stub)


def saved(bench: NemoBench, *rows: dict[str, Any]) -> RunArtifacts:
    """A run on the stub with a result for each of ``rows``, all graded 0."""
    bench.tasks(*rows)
    artifacts = prepared(bench.settings(verifier="environment"))
    for index in range(len(rows)):
        write_history(artifacts, index, ["ok"])
    return artifacts


def server(stub: NemoStub, **more: Any) -> dict[str, Any]:
    return {"verifier": {"type": "gym_server", "head_server": {"port": stub.head_port}, **more}}


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


def write_files(
    directory: Path, results: list[dict[str, Any]], failures: list[dict[str, Any]], *, inventory: Path | None = None
) -> Path:
    directory.mkdir()
    paths = RunArtifacts(directory / "rollouts.jsonl")
    for path, found in ((paths.rollouts, results), (paths.failures, failures)):
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in found))
    if inventory is not None:
        paths.inventory.write_bytes(inventory.read_bytes())
    return paths.rollouts


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


class TestState:
    def test_a_server_that_may_keep_state_is_refused_and_nothing_is_written(
        self, bench: NemoBench, stub: NemoStub, tmp_path: Path
    ) -> None:
        artifacts = saved(bench, {})
        stub.reverify_mode = "unknown"

        with pytest.raises(RefusedError, match=r"does not say that it keeps no state \(math: unknown\)"):
            regrade(artifacts.rollouts, tmp_path / "new.jsonl", **server(stub))

        assert not list(tmp_path.glob("*new*"))
        assert stub.asked["POST /verify"] == 0

    def test_forced_it_is_warned_of_and_the_output_is_called_unsafe(
        self, bench: NemoBench, stub: NemoStub, tmp_path: Path
    ) -> None:
        artifacts = saved(bench, {})
        stub.reverify_mode = "unsupported"

        _, warned = regrade(artifacts.rollouts, tmp_path / "new.jsonl", force=True, **server(stub))

        assert warned == ["a resources server may keep state between gradings (math: unsupported): verdicts may be wrong"]
        assert sorted(path.name for path in tmp_path.glob("*new.jsonl")) == ["unsafe_new.jsonl"]
        assert RunArtifacts(tmp_path / "unsafe_new.jsonl").coverage.exists()

    def test_forced_where_it_is_not_needed_the_output_keeps_its_name(
        self, bench: NemoBench, stub: NemoStub, tmp_path: Path
    ) -> None:
        artifacts = saved(bench, {})

        regrade(artifacts.rollouts, tmp_path / "new.jsonl", force=True, **server(stub))

        assert (tmp_path / "new.jsonl").exists()

    def test_judging_again_asks_nobody_for_it(self, bench: NemoBench, stub: NemoStub, tmp_path: Path) -> None:
        """Its judge failed before it could leave state behind."""
        artifacts = saved(bench, {}, {})
        stub.reverify_mode = "unsupported"
        bench.tasks({}, {})
        settings = bench.settings(verifier="environment", output_jsonl_fpath=tmp_path / "failed.jsonl")
        write_history(prepared(settings), 0, ["jf(A)"])

        regrade(settings.output_jsonl_fpath, tmp_path / "new.jsonl", judge_failed_only=True, **server(stub))

        assert (stub.asked["GET /reverify_mode"], stub.asked["POST /verify"]) == (0, 1)
        assert artifacts.rollouts.exists()


class TestWhichServer:
    def test_the_only_one_grades_rows_that_name_nobody_with_a_warning(
        self, bench: NemoBench, stub: NemoStub, tmp_path: Path
    ) -> None:
        files = write_files(tmp_path / "files", [result_of(0)], [])

        _, warned = regrade(files, tmp_path / "new.jsonl", **server(stub))

        assert warned == ["rows that name no resources server are graded by the only one there is"]

    def test_of_several_one_has_to_be_named(self, bench: NemoBench, stub: NemoStub, tmp_path: Path) -> None:
        stub.config["law"] = {"resources_servers": {"law": {"host": "127.0.0.1", "port": stub.work_port}}}
        files = write_files(tmp_path / "files", [result_of(0)], [])

        with pytest.raises(ConfigError, match=r"rollout 0-0 names no resources server.*verifier\.resources_server"):
            regrade(files, tmp_path / "new.jsonl", **server(stub))
        regrade(files, tmp_path / "new.jsonl", **server(stub, resources_server="law"))

        assert by_id(tmp_path / "new.jsonl")["0-0"]["reward"] == 1.0

    @pytest.mark.parametrize(
        "named",
        [
            pytest.param({"task_source": "law"}, id="its-source"),
            pytest.param({"agent_ref": {"name": "law_agent"}}, id="its-agent"),
        ],
    )
    def test_a_row_goes_to_its_own(self, bench: NemoBench, stub: NemoStub, tmp_path: Path, named: dict[str, Any]) -> None:
        where = {"host": "127.0.0.1", "port": stub.work_port}
        law = {"type": "resources_servers", "name": "law"}
        stub.config["law"] = {"resources_servers": {"law": where}}
        stub.config["law_agent"] = {"responses_api_agents": {"simple_agent": {"resources_server": law, **where}}}
        output = RunArtifacts(tmp_path / "new.jsonl")

        regrade(write_files(tmp_path / "files", [result_of(0, **named)], []), output.rollouts, **server(stub))

        manifest = read_manifest(output.manifest)
        assert manifest is not None
        assert list(manifest.config["verifier"]["servers"]) == ["law"]

    def test_a_head_that_does_not_answer_is_named(self, tmp_path: Path) -> None:
        files = write_files(tmp_path / "files", [result_of(0)], [])
        verifier = {"type": "gym_server", "head_server": {"port": 1}}

        with pytest.raises(UnavailableError, match="head server does not answer"):
            regrade(files, tmp_path / "new.jsonl", verifier=verifier)


def result_of(task: int, **fields: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]}
    return {
        "_ng_task_index": task, "_ng_rollout_index": 0, "responses_create_params": {"input": "2+3?"}, "reward": 0.0,
        "response": {"output": [message]}, **fields,
    }  # fmt: skip


def test_servers_of_other_settings_do_not_append_to_a_run(bench: NemoBench, stub: NemoStub) -> None:
    """The judge of an environment stands in the settings that the run was made with."""
    bench.tasks({})
    settings = bench.settings(verifier="environment")
    artifacts = prepared(settings)
    write_history(artifacts, 0, ["jf(A)"])
    stub.config["math"]["resources_servers"]["math"]["tolerance"] = 0.5
    # The command is another process than the one that made the run.
    forget()
    before = artifacts.journal.read_bytes()

    with pytest.raises(IdentityError, match=r"another verifier \(math\)"):
        append(settings, **server(stub))

    assert (artifacts.journal.read_bytes(), stub.asked["POST /verify"]) == (before, 0)


def test_what_is_refused_leaves_flagged_results_as_they_are(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks({"stub": {"mode": "reply", "reply": {"reward": 0.0, "invalid_judge_response": True}}})
    bench.fill(verifier="environment")
    stub.config["math"]["resources_servers"]["math"]["tolerance"] = 0.5
    forget()
    before = without_locks(bench)

    with pytest.raises(IdentityError, match=r"another verifier \(math\)"):
        append(bench.settings(verifier="environment"), retry={"retry_invalid_judge_responses": True}, **server(stub))

    assert without_locks(bench) == before


def without_locks(bench: NemoBench) -> dict[str, bytes]:
    return {name: data for name, data in bench.files().items() if not name.endswith(".lock")}


def test_servers_that_are_not_those_of_the_saved_configuration_grade_nothing(
    bench: NemoBench, stub: NemoStub, tmp_path: Path
) -> None:
    artifacts = saved(bench, {})
    said = tmp_path / "servers.yaml"
    said.write_bytes(orjson.dumps(stub.config))
    stub.config["math"]["resources_servers"]["math"]["tolerance"] = 0.5
    forget()

    with pytest.raises(IdentityError, match=r"servers that run are not those of .*: math differ"):
        regrade(artifacts.rollouts, tmp_path / "new.jsonl", **server(stub, config_file=said))

    assert stub.asked["POST /verify"] == 0
    assert not RunArtifacts(tmp_path / "new.jsonl").manifest.exists()


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
