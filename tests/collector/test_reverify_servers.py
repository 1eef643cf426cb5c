"""Which servers of a NeMo Gym are trusted with a saved answer: without state, named by the row, and of the run's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.agents.nemo_gym.head import forget
from collector.artifacts import RunArtifacts
from collector.errors import ConfigError, IdentityError, RefusedError, UnavailableError
from collector.formats.manifest import read_manifest
from tests.collector.gym_grading import result_of, saved, server, write_files
from tests.collector.regrading import append, by_id, prepared, regrade, write_history
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import NemoStub


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
