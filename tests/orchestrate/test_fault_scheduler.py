"""Faults that people met when they submitted: what a scheduler answers, forgets or takes back, one rule each."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from orchestrate.runs.plan import batches
from orchestrate.runs.submissions import ShardNeed, read_submissions, shard_needs
from orchestrate.scheduler import SlurmScheduler
from tests.orchestrate.fake_slurm import ACCEPT, LIST, FakeSlurm
from tests.orchestrate.fault_project import submit
from tests.orchestrate.project import Project


@pytest.mark.parametrize(
    "answer", ["echo $id; exit 1", "echo $id; echo 'error: socket timed out' >&2"], ids=["exit-1", "exit-0"]
)
def test_a1_an_error_after_acceptance_makes_no_second_job(project: Project, fake: FakeSlurm, answer: str) -> None:
    project.benchmark("a", tasks=4, shards=2)
    project.benchmark("b", tasks=2)
    fake.program("sbatch", f"{ACCEPT}\n{answer}")

    codes = [submit(project, fake)[0] for _ in range(2)]

    assert codes == [0, 0]
    assert len(fake.jobs()) == 3


@pytest.mark.parametrize(
    ("shards", "sizes"), [(1000, [1000]), (1001, [1001]), (1002, [1001, 1]), (2002, [1001, 1001]), (3000, [1001, 1001, 998])]
)
def test_a3_arrays_are_split_exactly_and_none_is_empty(shards: int, sizes: list[int]) -> None:
    parts = batches(range(shards), 1001)

    assert [len(part) for part in parts] == sizes
    assert [index for part in parts for index in part] == list(range(shards))


def test_a4_a_submit_limit_leaves_a_receipt_and_the_rest_for_the_same_command(project: Project, fake: FakeSlurm) -> None:
    for number in range(6):
        project.benchmark(f"b{number}", tasks=2)
    refuse = 'if [ "$(grep -vc gym-finish "$HERE/sbatch.calls")" -gt 3 ]; then echo "error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; fi'
    fake.program("sbatch", f"{refuse}\n{ACCEPT}\necho $id")

    code, said = submit(project, fake)
    errors = [job["error"] for job in json.loads((project.run_dir / "gym-job.json").read_text())["benchmarks"]]
    fake.program("sbatch", f"{ACCEPT}\necho $id")
    again, _ = submit(project, fake)

    assert (code, again) == (5, 0)
    assert "QOSMaxSubmitJobPerUserLimit" in said
    assert [error is None for error in errors] == [True] * 3 + [False] * 3
    assert len(fake.jobs()) == 6


def test_a6_a_scheduler_that_does_not_answer_ends_nothing(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    submit(project, fake)
    failing = f'n=$(wc -l < "$HERE/squeue.calls"); [ $n -le 3 ] && {{ echo "Connection refused" >&2; exit 1; }}\n{LIST}'
    (fake.directory / "squeue.calls").unlink(missing_ok=True)
    fake.program("squeue", failing)

    seen = [json.loads(project.gym("status", str(project.run_dir), "--json", env=fake.env).stdout) for _ in range(4)]

    told = [report["scheduler_trouble"] is not None for report in seen]
    assert told == [True, True, True, False]
    assert [report["benchmarks"][0]["shards"][0]["final"] for report in seen] == [False] * 4
    assert seen[3]["benchmarks"][0]["shards"][0]["job_state"] == "PENDING"


def test_a6_a_hanging_query_is_given_up(monkeypatch: pytest.MonkeyPatch, fake: FakeSlurm) -> None:
    monkeypatch.setattr("orchestrate.scheduler.ASK_TIMEOUT_S", 0.5)
    for name in ("squeue", "sacct"):
        fake.program(name, "exec sleep 60")
    begun = time.monotonic()

    fact = SlurmScheduler().ask({"gym-a-1": ["101"]})["101"]

    assert not fact.is_live
    assert not fact.is_over
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("states", "needs"),
    [
        pytest.param(["RUNNING", "PREEMPTED", ""], ["live", "live", "job"], id="the-site-cancels"),
        pytest.param(["PREEMPTED", "PENDING", "RUNNING", "COMPLETED"], ["live", "live", "live", "job"], id="the-site-requeues"),
    ],
)
def test_a7_preemption_is_followed_through_whatever_the_site_does(
    project: Project, fake: FakeSlurm, states: list[str], needs: list[str]
) -> None:
    project.benchmark("a", tasks=2)
    submit(project, fake)
    submissions = read_submissions(project.run_dir / "submissions.jsonl")
    found: list[ShardNeed] = []

    for state in states:
        fake.program("squeue", f'echo "101|{state}|None"' if state else "exit 0")
        facts = SlurmScheduler().ask({s.token: list(s.jobs.values()) for s in submissions})
        found += shard_needs([0], final={0: False}, submissions=submissions, facts=facts).values()

    assert found == needs


def test_a12_a_job_that_waits_after_preemption_gets_no_rival(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    submit(project, fake)
    fake.program("squeue", 'echo "101|PENDING|BeginTime"; echo "102|PENDING|Dependency"')

    submitted = submit(project, fake)
    moved = project.gym("resubmit", str(project.run_dir), env=fake.env)

    assert submitted[0] == 0
    assert moved.returncode == 4
    assert len(fake.jobs()) == 1


def test_a14_what_follows_a_failed_shard_runs_and_does_not_call_it_success(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=6, shards=3)
    submit(project, fake)
    (finisher,) = project.run_dir.glob("a/jobs/gym-finish-*/job.sh")
    fake.program("squeue", "exit 0")

    done = subprocess.run(
        ["bash", str(finisher)],
        env={**os.environ, **project.environment(), "SLURM_JOB_ID": "104", "SLURM_JOB_NODELIST": "n1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert "afterany:101" in finisher.read_text()
    assert done.returncode == 6, done.stdout + done.stderr
    assert json.loads((project.run_dir / "a" / "rollouts.partial_coverage.json").read_text())["partial"] is True
