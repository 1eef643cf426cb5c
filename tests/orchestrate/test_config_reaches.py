"""Every field of the configuration has an effect that can be seen: what is accepted is never silently dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrate.config.compute import SlurmCompute
from orchestrate.config.load import load_config
from orchestrate.executors.base import JobBatch, Unit
from orchestrate.executors.slurm import SlurmArrays
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan

#: How a submission gets to the login node; no job knows of it.
ABOUT_THE_LOGIN_NODE = {"hostname", "remote_program", "remote_dir"}
VALUES: dict[str, Any] = {
    "account": "research",
    "partition": "gpu",
    "qos": "long",
    "walltime": "2-12:00:00",
    "nodes": 2,
    "cpus_per_task": 7,
    "mem": "77G",
    "gpus_per_node": 8,
    "max_concurrent": 5,
    "extra_args": {"mail-user": "me@example.org", "exclusive": True, "comment": None, "nice": ""},
    "python": "/opt/own/python",
    "setup": ["module load own"],
    "node_pools": {"front": {"partition": "cpu"}, "back": {"partition": "gpu", "gpus_per_node": 4}},
}
SEEN = {
    "account": "#SBATCH --account=research",
    "partition": "#SBATCH --partition=gpu",
    "qos": "#SBATCH --qos=long",
    "walltime": "#SBATCH --time=2-12:00:00",
    "nodes": "#SBATCH --nodes=2",
    "cpus_per_task": "#SBATCH --cpus-per-task=7",
    "mem": "#SBATCH --mem=77G",
    "gpus_per_node": "#SBATCH --gpus-per-node=8",
    "max_concurrent": "#SBATCH --array=0-2%5",
    "extra_args": "#SBATCH --mail-user=me@example.org\n#SBATCH --exclusive\n",
    "python": "exec /opt/own/python -u -m orchestrate.entry",
    "setup": "\nmodule load own\n",
    "node_pools": "#SBATCH hetjob\n#SBATCH --job-name=gym-math-1\n",
}


def script(compute: dict[str, Any]) -> str:
    data = {
        "compute": {"hpc": {"type": "slurm", "walltime": "4h", **compute}},
        "driver": {"benchmarks": {"math": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}}},
        "job": {"output_path": "/runs"},
    }
    config = load_config(data, where=Path("x.yaml"), environ={}).config
    benchmark = BenchmarkPlan(
        name="math", slug="math", run_id="r", shard_sizes=[1, 1, 1], source_digest="s", inventory_digest="i"
    )
    plan = SubmitPlan(
        name="n", version="0", created_at="", config_file="", cwd="/", identity_digest="d", identity={}, config=config,
        benchmarks=[benchmark],
    )  # fmt: skip
    return SlurmArrays(RunDir(Path("/runs/n")), plan).preview(
        JobBatch("gym-math-1", tuple((Unit(benchmark, index),) for index in range(3)))
    )


@pytest.mark.parametrize("field", sorted(set(SlurmCompute.model_fields) - {"type", *ABOUT_THE_LOGIN_NODE}))
def test_a_compute_field_reaches_the_script(field: str) -> None:
    assert SEEN[field] not in script({})
    assert SEEN[field] in script({field: VALUES[field]})


def test_absent_values_leave_no_trace() -> None:
    text = script({"account": "", "qos": None, "extra_args": {"comment": None, "nice": "", "exclusive": False}})

    assert "None" not in text
    assert "account" not in text
    assert "comment" not in text
    assert "exclusive" not in text


def test_what_resuming_depends_on_is_always_there() -> None:
    text = script({})

    for line in ("--requeue", "--open-mode=append", "--signal=B:USR2@90", "--job-name=gym-math-1", "--chdir=/runs/n"):
        assert f"#SBATCH {line}\n" in text
    assert "srun" not in text.replace("exec, not srun", "")
