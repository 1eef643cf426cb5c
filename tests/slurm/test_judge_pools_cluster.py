"""A judge on nodes of its own, apart from the model that it grades, on a real scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.collector.shards import rows_of
from tests.orchestrate.judged import judged, with_judge
from tests.orchestrate.project import Project
from tests.slurm.test_node_pools_cluster import job_id, nodes_of, report
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

POOLS: dict[str, dict[str, Any]] = {"models": {"partition": "batch"}, "judges": {"partition": "high"}}


def apart(tmp_path: Path, pools: dict[str, dict[str, Any]], **judge: Any) -> Project:
    """The policy in the pool ``models``, the judge in ``judges``; each says on which node it runs."""
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M", "node_pools": pools})
    with_judge(project, tasks=8, **judge)
    for name, pool in {"policy": "models", "judge": "judges"}.items():
        service = project.config["services"][name]
        command = " ".join(f"'{part}'" for part in [*service["command"], "--host={host}"])
        text = f"echo runs on $SLURMD_NODENAME; exec {command}"
        project.config["services"][name] = {**service, "command": text, "node_pool": pool}
    return project


def graded(project: Project) -> dict[str, set[Any]]:
    """What the merged rows say of their grading."""
    rows = rows_of(project.run_dir / "essays" / "rollouts.jsonl")
    assert len(rows) == 8
    return {
        "models": {row["judge"]["model"] for row in rows},
        "rewards": {(row["reward"], row["judge"]["verdict"]) for row in rows},
        "tokens": {row["judge_output_tokens"] for row in rows},
    }


GRADED = {"models": {"judge-model"}, "rewards": {(1.0, "correct"), (0.0, "incorrect")}, "tokens": {2}}


def node_said(project: Project, service: str) -> list[str]:
    """The nodes that ``service`` said it runs on, in the order of its starts."""
    logs = sorted((project.run_dir / "essays" / "logs").glob(f"{service}-*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [line.removeprefix("runs on ") for line in lines if line.startswith("runs on ")]


def test_a_judge_in_a_pool_of_another_partition_grades_what_the_policy_answers(tmp_path: Path, slurm: SlurmCluster) -> None:
    """Each shard is a heterogeneous job: the collector and the policy on its first node, the judge on its second."""
    project = apart(tmp_path, POOLS, delay=0.3)
    project.submit()
    slurm.wait_for(lambda: judged(project), 60)
    nodes = nodes_of(slurm, job_id(project))
    partitions = partitions_of(slurm, job_id(project))

    done = project.gym("watch", "--every", "1", timeout_s=150)

    assert done.returncode == 0, done.stdout + done.stderr + project.logs()
    assert "0.75 (8/8)" in done.stdout
    assert partitions == {"0": "batch", "1": "high"}
    assert nodes["0"] != nodes["1"]
    assert (nodes["0"] in node_said(project, "policy"), nodes["1"] in node_said(project, "judge")) == (True, True)
    assert graded(project) == GRADED
    assert (len(project.requests()), len(judged(project))) == (8, 8)


def partitions_of(cluster: SlurmCluster, job: str) -> dict[str, str]:
    """The partition of each component."""
    lines = cluster.run("squeue", "--noheader", "--states=all", "--format=%i|%P", f"--jobs={job}").splitlines()
    return {text.partition("+")[2]: partition for text, partition in (line.split("|") for line in lines)}


def test_a_judge_and_the_policy_each_have_a_node_of_pools_that_are_equal(tmp_path: Path, slurm: SlurmCluster) -> None:
    """The pools are one allocation of three nodes, the collector's own pool among them, and the shards one array."""
    del slurm
    project = apart(tmp_path, {name: {"partition": "batch"} for name in ("front", "models", "judges")})

    said = project.submit("--wait", timeout_s=150)

    assert "0.75 (8/8)" in said
    pairs = list(zip(node_said(project, "policy"), node_said(project, "judge"), strict=True))
    assert len(pairs) == len(report(project)["shards"]) == 2
    assert all(policy != judge for policy, judge in pairs)
    assert graded(project) == GRADED


def test_a_judge_that_ends_on_its_own_node_is_started_there_again(tmp_path: Path, slurm: SlurmCluster) -> None:
    """With the policy, since a job's services live together; nobody loses a verdict, and no rollout an attempt for good."""
    del slurm
    project = apart(tmp_path, POOLS, exit_after=6)
    project.config["driver"]["benchmarks"]["essays"]["shards"] = 1

    said = project.submit("--wait", timeout_s=150)

    assert "0.75 (8/8)" in said, said + project.logs()
    first, second = node_said(project, "judge")
    assert first == second
    assert first not in node_said(project, "policy")
    assert graded(project) == GRADED
