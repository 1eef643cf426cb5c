"""Two example benchmarks of the real NeMo Gym 0.7.0, collected over HTTP by its own collector and by this one.

``NEMO_GYM`` names its program, ``gym``; the small model of the examples answers behind it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nemo.real_servers import PROGRAM, RealServers, real_servers
from tests.support import testkit
from tests.support.requirements import require
from tests.support.small_model import missing_packages

pytestmark = [pytest.mark.interop, pytest.mark.model, pytest.mark.timeout(1500)]

#: Written by one of the programs only, or different in every reply whoever asks.
OURS_ALONE = {"_ng_run_id", "_ng_session"}
NAMES = ("mcqa", "string_match")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServers]:
    require("the real NeMo Gym", [*([] if Path(PROGRAM).is_file() else ["NEMO_GYM, its program gym"]), *missing_packages()])
    here = Path.cwd()
    try:
        with real_servers(tmp_path_factory.mktemp("nemo"), NAMES) as running:
            yield running
    finally:
        os.chdir(here)


def ours(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "orchestrate.cli.main", *words]
    environ = {**os.environ, **testkit.environment()}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    return {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in found}


def text_of(row: dict[str, Any]) -> str:
    return "".join(part["text"] for item in row["response"]["output"] for part in item.get("content") or [])


def dataset_of(name: str, servers: RealServers, folder: Path) -> Path:
    """The examples, and for texts a few more that the small model gets right."""
    if name != "string_match":
        return servers.dataset(name)
    question = "What is the capital of France? Put your final answer in \\boxed{}."
    easy = [
        {
            "responses_create_params": {"input": [{"role": "user", "content": question}]},
            "expected_answer": answer,
            "extraction_mode": "last_line",
            "case_sensitive": False,
        }
        for answer in ("The capital of France is Paris.", "Paris", "Rome")
    ]
    path = folder / "string_match.jsonl"
    path.write_bytes(servers.dataset(name).read_bytes() + b"".join(json.dumps(row).encode() + b"\n" for row in easy))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_and_resumed_collection_is_what_its_own_collector_gives(
    servers: RealServers, tmp_path: Path, name: str
) -> None:
    dataset = dataset_of(name, servers, tmp_path)
    mine, other = tmp_path / "ours" / "rollouts.jsonl", tmp_path / "theirs" / "rollouts.jsonl"
    begun = time.monotonic()
    first = ours(*servers.command(name, mine, dataset))
    while first.poll() is None and not (mine.exists() and mine.read_bytes().count(b"\n") >= 3):
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    kept = mine.read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]

    second = ours(*servers.command(name, mine, dataset))
    out, err = second.communicate()
    ours_took = time.monotonic() - begun
    assert second.returncode == 0, out + err
    begun = time.monotonic()
    done = servers.theirs(*servers.command(name, other, dataset))
    theirs_took = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr

    assert kept.count(b"\n") > 0
    assert mine.read_bytes().startswith(kept)
    a, b = rows(mine), rows(other)
    assert a.keys() == b.keys()
    assert sorted(rows(mine.with_name("rollouts_materialized_inputs.jsonl")).items()) == sorted(
        rows(other.with_name("rollouts_materialized_inputs.jsonl")).items()
    )
    for key, theirs in b.items():
        shown = {field: value for field, value in theirs.items() if field != "response" and value is not None}
        assert {field: a[key].get(field) for field in shown} == shown
        assert text_of(a[key]) == text_of(theirs)
        assert a[key]["response"]["usage"]["output_tokens"] == theirs["response"]["usage"]["output_tokens"]
        assert a[key].keys() - theirs.keys() - OURS_ALONE <= {"_ng_attempt_index"}
    rewards = [row["reward"] for row in b.values()]
    took = f"{ours_took:.0f} s with a kill, {theirs_took:.0f} s its own"
    print(
        f"{name}: {len(b)} rollouts, {kept.count(bytes([10]))} kept over the kill, mean {sum(rewards) / len(rewards):.3f}; {took}"
    )


def test_its_own_aggregate_reads_the_merged_file(servers: RealServers, tmp_path: Path) -> None:
    dataset = dataset_of("string_match", servers, tmp_path)
    run, other = tmp_path / "run" / "rollouts.jsonl", tmp_path / "theirs" / "rollouts.jsonl"
    assert ours(*servers.command("string_match", run, dataset)).wait() == 0
    merged = tmp_path / "merged" / "rollouts.jsonl"
    assert ours("eval", "aggregate", "--input-glob", str(run), "--output", str(merged)).wait() == 0
    assert servers.theirs(*servers.command("string_match", other, dataset)).returncode == 0

    target = tmp_path / "read" / "rollouts.jsonl"
    head = ["+head_server.host=127.0.0.1", f"+head_server.port={servers.port}"]
    done = servers.theirs("eval", "aggregate", "--input-glob", str(merged), "--output", str(target), *head)

    assert done.returncode == 0, done.stdout + done.stderr
    (read,), (own,), (mine,) = (
        json.loads(path.with_name("rollouts_aggregate_metrics.json").read_bytes()) for path in (target, other, merged)
    )
    assert read["agent_ref"] == own["agent_ref"] == mine["agent_ref"] == {"name": "string_match_simple_agent"}
    assert read["agent_metrics"] == own["agent_metrics"]
    same = own["agent_metrics"].keys() & mine["agent_metrics"].keys() & {"mean/reward", "mean/output_tokens", "max/reward"}
    assert {key: mine["agent_metrics"][key] for key in same} == {key: own["agent_metrics"][key] for key in same}
    print(f"aggregate of the merged file: {len(read['agent_metrics'])} figures, all equal to those of its own run")
