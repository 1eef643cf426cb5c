"""A run on a cluster that is reached by ssh: one connection, the same program there, and nothing lost when it is cut."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operate.login_node import LoginNode, login_node
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(180)
SECRET = "probe-secret-7e1f"


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginNode]:
    with login_node(tmp_path_factory.mktemp("l") / "n") as node:
        yield node


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "slurm")
    fake.program(
        "scancel",
        'for a in "$@"; do sed -i "s/^\\($a|.*|\\).*/\\1CANCELLED/" "$HERE/jobs"; done',
    )
    return fake


@pytest.fixture
def project(tmp_path: Path, fake: FakeSlurm) -> Project:
    """The laptop's folder; the login node has another one, its own state and its own PATH."""
    project = Project(tmp_path / "laptop", {"type": "slurm", "walltime": "1h"})
    far = tmp_path / "far"
    far.mkdir()
    environment = {**project.environment(), "XDG_STATE_HOME": str(tmp_path / "far-state")}
    words = {name: environment[name] for name in ("PYTHONPATH", "XDG_STATE_HOME")} | {"PATH": fake.env["PATH"]}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in words.items())
    program = f"env {settings} {sys.executable} -m orchestrate.cli.main"
    project.config["compute"]["here"] |= {"hostname": "login", "remote_program": program, "remote_dir": str(far)}
    project.config["job"]["output_path"] = "runs"
    return project


def submit(project: Project, node: LoginNode, *arguments: str) -> subprocess.CompletedProcess[str]:
    return project.gym("submit", str(project.write()), *arguments, env={**node.env, "PROBE_KEY": SECRET})


def far_run(tmp_path: Path) -> Path:
    (found,) = [path for path in (tmp_path / "far" / "runs").iterdir() if not path.name.startswith(".")]
    return found


def test_a_run_is_submitted_asked_about_and_cancelled_over_one_connection(
    project: Project, node: LoginNode, fake: FakeSlurm, tmp_path: Path
) -> None:
    project.benchmark("math", tasks=6, shards=3)

    submitted = submit(project, node)
    name = far_run(tmp_path).name
    status = project.gym("status", "--json", env=node.env)
    cancelled = project.gym("cancel", name[:9], env=node.env)
    listed = project.gym("list", env=node.env)

    assert submitted.returncode == 0, submitted.stderr
    assert f"login:{far_run(tmp_path)}" in submitted.stdout
    assert [shard["job_state"] for shard in json.loads(status.stdout)["benchmarks"][0]["shards"]] == ["PENDING"] * 3
    assert cancelled.returncode == 0, cancelled.stderr
    assert {state for _, _, state in fake.jobs()} == {"CANCELLED"}
    assert f"login:{far_run(tmp_path)}" in listed.stdout
    assert node.connections() == 1
    # Nothing was made on the laptop, and the file that was sent leads nowhere else.
    assert not (project.root / "runs").exists()
    assert json.loads((far_run(tmp_path) / "plan.json").read_text())["config"]["compute"]["here"]["hostname"] is None


def test_the_same_submit_again_finds_the_same_run(project: Project, node: LoginNode, fake: FakeSlurm) -> None:
    project.benchmark("math", tasks=6, shards=3)
    submit(project, node)
    before = fake.jobs()

    again = submit(project, node)

    assert again.returncode == 0, again.stderr
    assert fake.jobs() == before


def test_a_dry_run_shows_the_script_of_the_login_node_and_makes_nothing(
    project: Project, node: LoginNode, tmp_path: Path
) -> None:
    project.benchmark("math", tasks=6, shards=3)

    done = submit(project, node, "--dry-run")

    assert "#SBATCH --array=0-2" in done.stdout
    assert f"{tmp_path}/far/runs/" in done.stdout
    assert not (tmp_path / "far" / "runs").exists()


def test_a_refusal_there_is_a_refusal_here(project: Project, node: LoginNode) -> None:
    project.benchmark("math", tasks=2, shards=1)
    project.config["driver"]["benchmarks"]["math"]["run"]["input_jsonl_fpath"] = "nowhere.jsonl"

    done = submit(project, node)

    assert done.returncode == 3
    assert "nowhere.jsonl" in done.stderr


def test_an_unreachable_login_node_is_one_line(project: Project, node: LoginNode) -> None:
    project.benchmark("math", tasks=2)
    node.process.terminate()
    node.process.wait(10)

    done = submit(project, node)

    assert done.returncode == 5
    assert "login: the connection could not be made" in done.stderr


def test_the_doctor_looks_where_the_jobs_will_be(project: Project, node: LoginNode, tmp_path: Path) -> None:
    """It asked the laptop for a controller, and tried locks on the laptop's disk."""
    project.benchmark("math", tasks=2)
    config = str(project.write())

    there = project.gym("doctor", "--config", config, "--json", env=node.env)
    project.config["compute"]["here"]["remote_program"] = "no-such-program"
    without = project.gym("doctor", "--config", str(project.write()), env=node.env)
    node.cut()
    node.process.terminate()
    node.process.wait(10)
    cut = project.gym("doctor", "--config", config, env=node.env)

    found = {(item["subject"], item["level"]): item["text"] for item in json.loads(there.stdout)}
    assert found["login node", "ok"] == "login: what follows was found there"
    storage = [item["text"] for item in json.loads(there.stdout) if item["subject"] == "storage"]
    assert f"{tmp_path}/far/runs" in storage[0]
    assert "fail  login node: login: no-such-program eval doctor found nothing (exit code 127)" in without.stdout
    assert "fail  login node: login: ssh does not get there. Keys" in cut.stdout
    assert (without.returncode, cut.returncode) == (5, 5)
    assert "storage" not in without.stdout + cut.stdout


def test_a_variable_of_the_laptop_reaches_the_job_and_no_file_and_no_argument(
    project: Project, node: LoginNode, fake: FakeSlurm, tmp_path: Path
) -> None:
    project.config["driver"]["env"] = {"KEY": "host:PROBE_KEY"}
    project.benchmark("math", tasks=2)
    # A job gets its environment from sbatch.
    fake.program(
        "sbatch", f'{(fake.directory / "sbatch").read_text().partition("calls")[2].partition(chr(10))[2]}\nenv > "$HERE/env"'
    )

    done = submit(project, node)

    assert done.returncode == 0, done.stderr
    assert f"PROBE_KEY={SECRET}" in (fake.directory / "env").read_text()
    (fake.directory / "env").unlink()
    files = [path for top in ("far", "far-state", "laptop", "slurm") for path in (tmp_path / top).rglob("*") if path.is_file()]
    assert not [path for path in [*files, *node.top.rglob("*.calls")] if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("moment", ["before-sbatch", "after-acceptance"])
def test_a_connection_cut_in_the_middle_is_settled_by_the_same_command(
    project: Project, node: LoginNode, fake: FakeSlurm, tmp_path: Path, moment: str
) -> None:
    project.benchmark("math", tasks=6, shards=3)
    accept = (fake.directory / "sbatch").read_text().partition('.calls"\n')[2]
    wait = 'touch "$HERE/there"; sleep 3\n'
    fake.program(
        "sbatch", f"{wait}{accept}" if moment == "before-sbatch" else accept.replace("echo $id\n", f"{wait}echo $id\n")
    )
    submitting = subprocess.Popen(
        [sys.executable, "-m", "orchestrate.cli.main", "eval", "submit", str(project.write())],
        cwd=project.root, env={**project.environment(), **node.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for((fake.directory / "there").exists, 60)

    node.cut()
    _, said = submitting.communicate(timeout=60)
    fake.program("sbatch", accept)
    wait_for(lambda: submit(project, node).returncode == 0, 90)

    assert submitting.returncode == 5
    assert "Run the same command again" in said
    shard_jobs = [job_id for job_id, _, _ in fake.jobs() if "_" in job_id]
    assert len(shard_jobs) == 3
    state = json.loads(project.gym("status", str(far_run(tmp_path)), "--json", env=fake.env).stdout)
    assert sorted(shard["job_id"] for shard in state["benchmarks"][0]["shards"]) == sorted(shard_jobs)


def test_a_script_cut_at_any_place_runs_nothing(tmp_path: Path) -> None:
    from orchestrate.remote.forward import submit_script
    from orchestrate.remote.ssh import LoginNode as Node

    witness = tmp_path / "ran"
    node = Node("login", program=f"touch {witness}; true", directory=str(tmp_path))
    script = submit_script(node, {"compute": {"here": {"type": "slurm"}}}, stem="a b", options=["--json"], environ={})
    end = script.rindex("main")

    for length in range(0, end, 7):
        subprocess.run(
            ["sh", "-s"], input=script[:length], text=True, env={"HOME": str(tmp_path)}, capture_output=True, check=False
        )
    assert list(tmp_path.iterdir()) == []
    subprocess.run(["sh", "-s"], input=script, text=True, env={"HOME": str(tmp_path)}, capture_output=True, check=False)
    assert witness.exists() or list(tmp_path.rglob("a b.yaml"))


def test_a_missing_dataset_is_made_on_the_login_node(project: Project, node: LoginNode, tmp_path: Path) -> None:
    project.benchmark("math", tasks=2)
    settings = project.config["driver"]["benchmarks"]["math"]
    Path(settings["run"]["input_jsonl_fpath"]).rename(tmp_path / "far" / "source.jsonl")
    settings["run"]["input_jsonl_fpath"] = "made.jsonl"
    settings["prepare"] = {"command": "cp source.jsonl made.jsonl"}

    shown = submit(project, node, "--dry-run")
    existed = (tmp_path / "far" / "made.jsonl").exists()
    done = submit(project, node)

    assert "made.jsonl is missing; it would be made by: cp source.jsonl made.jsonl" in shown.stdout
    assert not existed
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "far" / "made.jsonl").exists()
    assert far_run(tmp_path).is_dir()
