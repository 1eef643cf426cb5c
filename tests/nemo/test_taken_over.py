"""A run that NeMo Gym's own collector began, taken up here: the expected outcome 23."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.errors import RefusedError
from collector.formats.manifest import read_manifest
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub, response_of


def begun_there(bench: NemoBench) -> None:
    """Three tasks: one has its row, one failed once, one was never started."""
    bench.tasks({}, {}, {})
    inputs = bench.inventory()
    stamps = {"_ng_environment_server": ENVIRONMENT, "_ng_result_type": "legacy_agent"}
    failed = {"_ng_failure_class": "agent_run_error", "_ng_failure_type": "ClientResponseError", "_ng_failure_message": "500"}
    identity = {"_ng_task_index": 1, "_ng_rollout_index": 0, "agent_ref": {"name": AGENT}}
    bench.artifacts.rollouts.parent.mkdir()
    write(bench.artifacts.inventory, inputs)
    write(
        bench.artifacts.rollouts, [{**inputs[0], "response": response_of("5"), "reward": 0.0, "mask_sample": False, **stamps}]
    )
    write(bench.artifacts.failures, [{**failed, "_ng_failure_http_status": 500, **identity, **stamps}])


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_it_is_refused_unless_asked_for(bench: NemoBench, stub: NemoStub) -> None:
    begun_there(bench)
    before = bench.files()

    with pytest.raises(RefusedError, match="without a manifest"):
        bench.fill()

    after = {name: data for name, data in bench.files().items() if not name.endswith(".lock")}
    assert after == before
    assert stub.runs == []


def test_what_it_recorded_is_kept_and_only_the_rest_is_asked(bench: NemoBench, stub: NemoStub) -> None:
    begun_there(bench)
    kept = bench.artifacts.rollouts.read_bytes()

    states = bench.fill(allow_unsafe_resume=True)

    assert states == {"measured": 3}
    assert bench.artifacts.rollouts.read_bytes().startswith(kept)
    assert {task: stub.attempts_of(task) for task in range(3)} == {0: [], 1: [1], 2: [0]}
    manifest = read_manifest(bench.artifacts.manifest)
    assert manifest is not None
    assert manifest.legacy_import
