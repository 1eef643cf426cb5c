"""The private cluster leaves nothing behind, however it ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.cluster import SlurmCluster
from tests.support.processes import marked_pids
from tests.support.requirements import booted

pytestmark = pytest.mark.slurm


def processes_of(cluster: SlurmCluster) -> list[int]:
    return marked_pids(f"SLURM_CONF={cluster.env['SLURM_CONF']}")


def test_stop_ends_every_daemon_and_every_process_of_a_job(tmp_path: Path) -> None:
    with booted(tmp_path, nodes=1) as cluster:
        job_id = cluster.submit("trap '' TERM; setsid sleep 300 & srun sleep 300")
        cluster.wait_for(lambda: cluster.state(job_id) == "RUNNING")
        # Daemons, and what the job has started by then: that it runs says nothing of its programs.
        cluster.wait_for(lambda: len(processes_of(cluster)) > 4)
        cluster.stop()
        after = processes_of(cluster)

    assert after == []


def test_a_cluster_that_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    with booted(tmp_path, nodes=1) as cluster:
        cluster.stop()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("", cluster.settings.ports.controller))
            taken.listen()
            with pytest.raises(AssertionError, match="slurmctld"):
                cluster.start()
        after = processes_of(cluster)

    assert after == []


def test_two_clusters_live_side_by_side(slurm: SlurmCluster, tmp_path: Path) -> None:
    with booted(tmp_path, nodes=2) as other:
        slurm.submit("sleep 60", "--job-name=here")
        other.submit("sleep 60", "--job-name=there")
        names = [job.name for job in slurm.squeue()], [job.name for job in other.squeue()]

    assert names == (["here"], ["there"])


def test_reset_gives_back_a_cluster_that_was_left_broken(tmp_path: Path) -> None:
    with booted(tmp_path, nodes=2) as cluster:
        cluster.submit("sleep 60")
        cluster.set_node("n1", "drain")
        cluster.kill_node("n2")
        cluster.stop_controller()
        cluster.reset()

        assert cluster.squeue() == []
        assert cluster.node_states() == {"n1": "idle", "n2": "idle"}


def test_an_array_limit_is_the_controllers_own(tmp_path: Path) -> None:
    with (
        booted(tmp_path, nodes=1, max_array=11) as cluster,
        pytest.raises(AssertionError, match="Invalid job array specification"),
    ):
        cluster.submit("true", "--array=0-11")


def test_a_directory_too_long_for_sockets_is_named(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)

    with pytest.raises(ValueError, match="too long for the sockets"):
        SlurmCluster(deep).start()
