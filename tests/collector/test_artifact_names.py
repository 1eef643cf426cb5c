"""The names of a run's files as text are those of its paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts


@pytest.mark.parametrize(
    "rollouts",
    [
        pytest.param("/runs/a/shards/0-of-2/rollouts.jsonl", id="absolute"),
        pytest.param("rollouts.jsonl", id="bare"),
        pytest.param("out.d/math", id="no-suffix-below-a-dot"),
        pytest.param("out/math.v2.partial.jsonl", id="many-suffixes"),
        pytest.param("out/.hidden", id="hidden"),
        pytest.param("out/ends.", id="ends-in-a-dot"),
    ],
)
def test_files_have_one_name_as_text_and_as_paths(rollouts: str) -> None:
    run = RunArtifacts(Path(rollouts))

    as_paths = (run.rollouts, run.manifest, run.journal, run.inventory, run.failures, run.moved)

    assert run.names_read == tuple(map(str, as_paths))
    assert run.recovery_companions == as_paths[1:5]
