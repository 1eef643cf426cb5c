"""The private cluster is a real Slurm: jobs run, are preempted, requeued and lost as on a shared one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import SlurmCluster

pytestmark = pytest.mark.slurm


def wait_until_running(slurm: SlurmCluster, job_id: str) -> None:
    slurm.wait_for(lambda: slurm.state(job_id) == "RUNNING")


def test_a_job_runs_on_a_virtual_node_and_leaves_its_output(slurm: SlurmCluster, tmp_path: Path) -> None:
    job_id = slurm.submit("echo $SLURMD_NODENAME", f"--output={tmp_path}/out")
    slurm.wait_for(lambda: slurm.state(job_id) == "COMPLETED")

    assert (tmp_path / "out").read_text(encoding="ascii").strip() in {"n1", "n2", "n3", "n4"}


def test_commands_of_the_test_itself_talk_to_the_cluster(slurm: SlurmCluster) -> None:
    job_id = slurm.submit("sleep 60", "--job-name=visible")
    names = subprocess.run(["squeue", "-h", "-j", job_id, "-o", "%j"], capture_output=True, text=True, check=True).stdout

    assert names.strip() == "visible"
    assert os.environ["SLURM_CONF"] == slurm.env["SLURM_CONF"]


def test_a_preempted_job_keeps_its_id_and_starts_again(slurm: SlurmCluster, tmp_path: Path) -> None:
    log = f"--output={tmp_path}/out"
    job_id = slurm.submit("echo run ${SLURM_RESTART_COUNT:-0}; sleep 60", log, "--open-mode=append")
    wait_until_running(slurm, job_id)
    with slurm.preempt(4):
        state, restarts = slurm.state(job_id), slurm.job(job_id)["Restarts"]
    slurm.start_now(job_id)
    slurm.wait_for(lambda: "run 1" in (tmp_path / "out").read_text(encoding="ascii"))

    assert (state, restarts) == ("PENDING", "1")
    assert "run 0" in (tmp_path / "out").read_text(encoding="ascii")


def test_a_job_can_be_preempted_twice(slurm: SlurmCluster) -> None:
    job_id = slurm.submit("sleep 60")
    for _ in range(2):
        wait_until_running(slurm, job_id)
        with slurm.preempt(4):
            pass
        slurm.start_now(job_id)
    wait_until_running(slurm, job_id)

    assert slurm.job(job_id)["Restarts"] == "2"


def test_preempting_named_nodes_spares_the_jobs_of_the_others(slurm: SlurmCluster) -> None:
    victim = slurm.submit("sleep 60", "--nodelist=n2")
    bystander = slurm.submit("sleep 60", "--nodelist=n3")
    wait_until_running(slurm, victim)
    wait_until_running(slurm, bystander)
    with slurm.preempt("n2"):
        states = slurm.state(victim), slurm.state(bystander)

    assert states == ("PENDING", "RUNNING")


def test_a_job_outlives_its_controller(slurm: SlurmCluster) -> None:
    job_id = slurm.submit("sleep 60")
    wait_until_running(slurm, job_id)
    slurm.stop_controller()
    slurm.start_controller()

    assert slurm.state(job_id) == "RUNNING"


def test_a_lost_node_takes_the_processes_of_its_job_and_tells_nobody(slurm: SlurmCluster, tmp_path: Path) -> None:
    job_id = slurm.submit(f"echo $$ > {tmp_path}/pid; sleep 60", "--nodelist=n4")
    wait_until_running(slurm, job_id)
    pid = slurm.wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(encoding="ascii").strip())
    slurm.kill_node("n4")

    slurm.wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert slurm.state(job_id) == "RUNNING"


def test_a_job_of_a_node_that_is_set_down_is_requeued(slurm: SlurmCluster) -> None:
    job_id = slurm.submit("sleep 60", "--nodelist=n1", "--requeue")
    wait_until_running(slurm, job_id)
    slurm.set_node("n1", "down")
    slurm.wait_for(lambda: slurm.state(job_id) == "PENDING")

    assert slurm.node_states()["n1"] == "down"


def test_without_accounting_there_is_no_history(slurm: SlurmCluster) -> None:
    with pytest.raises(AssertionError, match="accounting storage is disabled"):
        slurm.run("sacct")


def test_with_accounting_a_finished_job_has_a_history(slurm_accounting: SlurmCluster) -> None:
    job_id = slurm_accounting.submit("exit 3", "--account=research")
    slurm_accounting.wait_for(lambda: slurm_accounting.state(job_id) == "FAILED")

    def line() -> list[str]:
        return slurm_accounting.run("sacct", "-X", "-n", "-P", "-j", job_id, "-o", "state,exitcode,account").split("|")

    slurm_accounting.wait_for(lambda: line()[0] == "FAILED")
    assert line() == ["FAILED", "3:0", "research\n"]
