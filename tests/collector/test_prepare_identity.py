"""Saved work is used again only for the experiment that it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import IdentityError, RefusedError
from tests.collector.shards import asked, fill, settings_for, write_dataset


@pytest.fixture(autouse=True)
def dataset(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}, {"n": 1, "grade": 0}])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"policy_model_name": "b"}, 'policy_model_name: saved "a", now "b"', id="model"),
        pytest.param(
            {"responses_create_params": {"temperature": 1}},
            "responses_create_params.temperature: saved nothing, now 1",
            id="sampling",
        ),
        pytest.param({"num_repeats": 2}, "num_repeats: saved 1, now 2", id="repeats"),
        pytest.param({"limit": 1}, "limit: saved nothing, now 1", id="limit"),
        pytest.param({"agent": {"delay_s": 0.5}}, "agent.delay_s: saved 0.0, now 0.5", id="agent-setting"),
    ],
)
def test_another_experiment_is_refused_field_by_field_before_anything_happens(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    fill(settings_for(tmp_path, policy_model_name="a"))
    artifacts = RunArtifacts(tmp_path / "run" / "rollouts.jsonl")
    before = {path: path.read_bytes() for path in artifacts.rollouts.parent.iterdir() if path != artifacts.lock}

    with pytest.raises(IdentityError) as caught:
        fill(settings_for(tmp_path, **{"policy_model_name": "a", **change}))

    assert field in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before
    assert sum(asked(tmp_path).values()) == 2


def test_a_changed_dataset_is_refused(tmp_path: Path) -> None:
    fill(settings_for(tmp_path))
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}, {"n": 1, "grade": 1}])

    with pytest.raises(IdentityError, match="the dataset's content"):
        fill(settings_for(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"policy_base_url": "http://other:1/v1", "policy_api_key": "k2"}, id="address-and-key"),
        pytest.param({"num_samples_in_parallel": 3}, id="concurrency"),
        pytest.param({"timeouts": {"request_s": 5}}, id="timeouts"),
        pytest.param({"retry": {"max_attempts": 9}}, id="retries"),
    ],
)
def test_what_does_not_change_the_measurement_does_not_stop_a_resume(tmp_path: Path, change: dict[str, Any]) -> None:
    fill(settings_for(tmp_path, policy_base_url="http://one:1/v1", policy_api_key="k1"))

    fill(settings_for(tmp_path, **change))

    assert sum(asked(tmp_path).values()) == 2


@pytest.mark.parametrize("stray", ["rollouts", "journal", "failures", "inventory"])
def test_a_fresh_start_never_inherits_files_of_another_run(tmp_path: Path, stray: str) -> None:
    artifacts = RunArtifacts(tmp_path / "run" / "rollouts.jsonl")
    artifacts.rollouts.parent.mkdir()
    path = getattr(artifacts, stray)
    path.write_text('{"reward": 1}\n')

    with pytest.raises(RefusedError, match=path.name):
        fill(settings_for(tmp_path))

    assert path.read_text() == '{"reward": 1}\n'
    assert not asked(tmp_path)
