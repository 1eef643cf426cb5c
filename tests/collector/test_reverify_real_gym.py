"""Saved answers graded by resources servers of the real NeMo Gym 0.7.0: right ones, wrong ones, and one whose judge failed.

``NEMO_GYM`` names its program, ``gym``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import RefusedError
from tests.collector.regrading import by_id, regrade
from tests.nemo.real_servers import PROGRAM, RealServers, real_servers
from tests.support.nemo_stub import response_of
from tests.support.requirements import require
from tests.support.small_model import missing_packages

pytestmark = [pytest.mark.interop, pytest.mark.model, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServers]:
    require("the real NeMo Gym", [*([] if Path(PROGRAM).is_file() else ["NEMO_GYM, its program gym"]), *missing_packages()])
    here = Path.cwd()
    try:
        with real_servers(tmp_path_factory.mktemp("nemo"), ["mcqa", "string_match"]) as running:
            yield running
    finally:
        os.chdir(here)


def saved(directory: Path, server: str, rows: list[tuple[dict[str, Any], str]], *, judge_failed: bool = False) -> Path:
    """Rollouts as NeMo Gym writes them, each with the reward -1, which no server gives; or, judged by nobody, failures."""
    files = RunArtifacts(directory / "rollouts.jsonl")
    made = [
        {
            **row, "_ng_task_index": task, "_ng_rollout_index": 0, "response": response_of(text), "reward": -1.0,
            "agent_ref": {"type": "responses_api_agents", "name": f"{server}_simple_agent"},
            **({"_ng_failure_class": "judge_failed"} if judge_failed else {}),
        }
        for task, (row, text) in enumerate(rows)
    ]  # fmt: skip
    found = {files.rollouts: [] if judge_failed else made, files.failures: made if judge_failed else []}
    for path, lines in found.items():
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return files.rollouts


def choices(servers: RealServers) -> list[tuple[dict[str, Any], str]]:
    """Each example once with its right letter, and once with another."""
    rows = [json.loads(line) for line in servers.dataset("mcqa").read_text().splitlines()]
    wrong = {row["uuid"]: "A" if row["expected_answer"] != "A" else "B" for row in rows}
    right = [(row, f"So it is \\boxed{{{row['expected_answer']}}}") for row in rows]
    return [*right, *((row, f"So it is \\boxed{{{wrong[row['uuid']]}}}") for row in rows)]


@pytest.mark.parametrize("judge_failed", [False, True], ids=["results", "failed-judgements"])
def test_a_real_server_tells_right_answers_from_wrong_ones(servers: RealServers, tmp_path: Path, judge_failed: bool) -> None:
    rows = choices(servers)
    source = saved(tmp_path, "mcqa", rows, judge_failed=judge_failed)

    result, warned = regrade(
        source, tmp_path / "again.jsonl", head_server={"port": servers.port}, judge_failed_only=judge_failed
    )

    found = by_id(tmp_path / "again.jsonl")
    half = len(rows) // 2
    assert half > 3
    assert [found[f"{task}-0"]["reward"] for task in range(2 * half)] == [1.0] * half + [0.0] * half
    assert (warned, result.coverage.identity_verified) == ([], False)


def test_a_real_server_that_does_not_say_that_it_keeps_no_state_is_asked_only_by_force(
    servers: RealServers, tmp_path: Path
) -> None:
    question = {"responses_create_params": {"input": [{"role": "user", "content": "The capital of France?"}]}}
    row = {**question, "expected_answer": "Paris", "extraction_mode": "last_line", "case_sensitive": False}
    source = saved(tmp_path, "string_match", [(row, "Paris"), (row, "Rome")])
    head = {"port": servers.port}

    with pytest.raises(RefusedError, match=r"\(string_match: unknown\)"):
        regrade(source, tmp_path / "again.jsonl", head_server=head)
    regrade(source, tmp_path / "again.jsonl", head_server=head, force=True)

    assert not (tmp_path / "again.jsonl").exists()
    found = by_id(tmp_path / "unsafe_again.jsonl")
    assert {name: row["reward"] for name, row in found.items()} == {"0-0": 1.0, "1-0": 0.0}
