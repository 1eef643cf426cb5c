"""The exporter ``wandb`` with its real client against a stand-in of the server: what arrives, and when that may be said."""

from __future__ import annotations

import os
import re
from pathlib import Path

import orjson
import pytest

from collector.errors import ConfigError
from exporters.base import ExportState
from exporters.direct import export_run
from exporters.registry import make_exporter
from tests.exporters.made_runs import PROBE, merged_run
from tests.exporters.wandb_export import KEY, export
from tests.exporters.wandb_stand_in import WandbStandIn
from tests.merge.build import answered

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)


def test_what_arrives_is_the_aggregate_number_by_number_with_its_files(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    with WandbStandIn() as server:
        result = export(artifacts, server, upload_rollouts=True)

    assert result.is_success, result.message
    assert server.unknown == []
    ((name, run),) = server.runs.items()
    entry = orjson.loads(artifacts.aggregate.read_bytes())[0]
    agent = entry["agent_ref"]["name"]
    numbers = {f"{agent}/{key}": value for key, value in entry["agent_metrics"].items() if isinstance(value, int | float)}
    assert len(numbers) > 20
    assert {key: run.summary[key] for key in numbers} == numbers
    assert run.summary["coverage/expected"] == 8
    assert run.config["gym_eval"]["digest"] == result.evidence
    assert run.is_finished
    assert result.details[:2] == (f"id: {name}", f"address: {server.uri}/team/p/runs/{name}")
    (artifact,) = server.artifacts
    assert artifact.state == "COMMITTED"
    assert artifact.files["rollouts.jsonl"] == artifacts.rollouts.read_bytes()
    assert artifact.files["rollouts_coverage.json"] == artifacts.coverage.read_bytes()


def test_no_secret_and_nothing_of_this_machine_is_sent(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    with WandbStandIn() as server:
        assert export(artifacts, server, upload_rollouts=True).is_success

    sent = server.sent()
    assert b"coverage/expected" in sent
    for word in (PROBE, KEY, str(tmp_path), str(Path.home() / ".local"), "requirements.txt"):
        assert word.encode() not in sent, word
    # A host's name may be two letters, which ids and encoded bytes hold by chance: a value of its own is what counts.
    name = re.escape(os.uname().nodename.encode())
    assert not re.search(rb"(?<![\w+/=.-])" + name + rb"(?![\w+/=.-])", sent)
    assert set(server.run_files) == {"config.yaml", "wandb-summary.json"}


def test_an_unchanged_run_is_sent_once_and_a_changed_one_is_a_version_beside_it(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "a", run_id="r" * 32)
    with WandbStandIn() as server:
        export(artifacts, server, output_dirpath=tmp_path / "w")
        asked = len(server.requests)

        again = export(artifacts, server, output_dirpath=tmp_path / "w")
        asked_again = len(server.requests)
        changed = merged_run(tmp_path / "b", run_id="r" * 32, outcome=lambda *_: answered(1.0))
        other = export(changed, server, output_dirpath=tmp_path / "w")

    assert again.message == "already exported"
    assert asked_again == asked
    assert [name.endswith("-v2") for name in server.runs] == [False, True]
    assert other.details[0].endswith("-v2")


def test_a_changed_run_takes_the_place_of_the_old_one_when_told(tmp_path: Path) -> None:
    with WandbStandIn() as server:
        export(merged_run(tmp_path / "a", run_id="r" * 32), server, output_dirpath=tmp_path / "w")
        changed = merged_run(tmp_path / "b", run_id="r" * 32, outcome=lambda *_: answered(1.0))

        assert export(changed, server, output_dirpath=tmp_path / "w", replace=True).is_success

    (run,) = server.runs.values()
    assert run.summary["coverage/mean_reward"] == 1.0


def test_what_waits_offline_or_stands_on_another_server_or_project_is_not_there_yet(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    with WandbStandIn() as one, WandbStandIn() as other:
        results = [
            export(artifacts, one, mode="offline"),
            export(artifacts, one),
            export(artifacts, one, project="q"),
            export(artifacts, other),
        ]

    assert [(result.state.value, result.message) for result in results] == [("succeeded", "")] * 4
    assert len({result.details[0] for result in results}) == 1
    assert len(one.artifacts) == 2
    assert len(other.artifacts) == 1


def test_an_address_with_a_login_is_refused_unread_and_one_of_the_environment_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = merged_run(tmp_path / "b")
    with pytest.raises(ConfigError) as refused:
        make_exporter("wandb", {"project": "p", "base_url": f"http://me:{PROBE}@h"}, artifacts)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://me:{PROBE}@127.0.0.1:9")

    result = export_run("wandb", {"project": "p", "timeout_s": 20, "request_timeout_s": 2}, artifacts)

    assert result.state is ExportState.FAILED
    assert PROBE not in str(refused.value)
    assert PROBE not in "\n".join(result.lines("wandb")) + artifacts.exports.read_text()
