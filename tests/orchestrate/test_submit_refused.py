"""What is not submitted: previews, what cannot work, and what would mix two runs. Each is told, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrate.executors.submitit_local import DetachedLocalExecutor
from orchestrate.submission.refusals import explained, what_to_do
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project, tree

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})


def test_a_given_name_belongs_to_one_experiment(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.config["job"]["name"] = "mine"
    project.submit("--wait", timeout_s=100)
    before = tree(project.runs)

    project.config["driver"]["benchmarks"]["math"]["run"]["num_repeats"] = 2
    said = project.submit(code=4)

    assert "benchmarks.math.experiment.num_repeats: saved 1, now 2" in said
    assert tree(project.runs) == before


def test_a_dry_run_and_resolve_only_create_nothing(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.write()
    before = tree(project.root)

    plan = project.submit("--dry-run")
    machine = json.loads(project.submit("--dry-run", "--json"))
    resolved = project.submit("--resolve-only")

    assert tree(project.root) == before
    assert "math" in plan
    assert machine["benchmarks"] == [{"benchmark": "math", "rollouts": 2, "shards": 1}]
    assert "served_model_name: test-model" in resolved


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        pytest.param({"verifier": {"type": "exact"}}, 2, "unknown verifier 'exact'", id="verifier"),
        pytest.param({"agent": {"type": "openai_chat", "temprature": 1}}, 2, "temprature", id="agent-setting"),
        pytest.param({"input_jsonl_fpath": "nope.jsonl"}, 3, "there is no such dataset", id="dataset"),
        pytest.param({"limit": 0}, 2, "limit", id="limit"),
        pytest.param({"agent": {"type": "openai_chat", "headers": {"Authorization": "x"}}}, 2, "{env: VARIABLE}", id="secret"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_created(
    project: Project, change: dict[str, object], code: int, told: str
) -> None:
    project.benchmark("math", tasks=2)
    project.config["driver"]["benchmarks"]["math"]["run"] |= change

    said = project.submit(code=code)

    assert told in said
    assert len(said.splitlines()) == 1
    assert not project.runs.exists()


@pytest.mark.parametrize("below", ["x", "x" * 300], ids=["below-a-file", "too-long"])
def test_an_output_path_that_cannot_be_made_is_one_line(project: Project, below: str) -> None:
    project.benchmark("math", tasks=2)
    place = project.root / ("submit.yaml" if below == "x" else "new") / below
    project.config["job"]["output_path"] = str(place)
    project.write()
    before = tree(project.root)

    said = project.submit(code=5)

    assert "the run cannot be created" in said
    assert str(place) in said
    assert len(said.splitlines()) == 1
    if below == "x":
        assert tree(project.root) == before


def test_a_batch_whose_last_process_cannot_be_started_leaves_none_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(_: DetachedLocalExecutor, position: int) -> subprocess.Popen[bytes]:
        if position == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return started[-1]

    monkeypatch.setattr(DetachedLocalExecutor, "_start", start)

    with pytest.raises(BlockingIOError):
        DetachedLocalExecutor(tmp_path / "jobs" / "t", logs=tmp_path).submit_array([int, int, int])

    assert [process.returncode for process in started] == [-signal.SIGTERM, -signal.SIGTERM]


def test_more_shards_than_rollouts_are_refused(project: Project) -> None:
    project.benchmark("math", tasks=2, shards=3)

    assert "3 shards for 2 rollouts" in project.submit(code=2)
    assert not project.runs.exists()


def test_secrets_of_the_submitting_shell_are_in_no_file(project: Project) -> None:
    project.config["services"]["policy"]["env"] = {"HF_TOKEN": "host:PROBE_TOKEN"}
    project.config["driver"]["env"] = {"JUDGE_KEY": "host:PROBE_TOKEN"}
    project.benchmark("math", tasks=2)

    done = project.gym("submit", str(project.write()), "--wait", env={"PROBE_TOKEN": "hf_PROBE123"}, timeout_s=100)

    assert done.returncode == 0, done.stderr
    assert "hf_PROBE123" not in done.stdout + done.stderr
    assert [name for name, content in tree(project.root).items() if content and b"hf_PROBE123" in content] == []
    assert (project.run_dir / "resolved-config.yaml").stat().st_mode & 0o777 == 0o600


def test_two_benchmarks_exported_to_one_place_are_refused(project: Project) -> None:
    project.benchmark("a", tasks=2)
    project.benchmark("b", tasks=2)
    project.config["export"] = {"atif": {"agent_version": "1.0.0", "output_dirpath": "/tmp/one"}, "mlflw": {}}

    said = project.submit(code=2)

    assert "export.atif: a and b would both be exported to /tmp/one" in said
    assert "unknown exporter 'mlflw'" in said
    assert not project.runs.exists()


AGAIN = "run the same command again: it submits what is missing."
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        pytest.param(
            "Batch job submission failed: Invalid partition name specified",
            f"Change compute's partition (sinfo -s lists them), then {AGAIN}",
            id="lasting",
        ),
        pytest.param(
            f"Batch job submission failed: {POLICY}",
            "Change compute's account, qos or partition, or what they limit: walltime, nodes, GPUs, and jobs at once by shards and "
            f"job.pack (gym eval doctor and sacctmgr show assoc tell what is allowed), then {AGAIN}",
            id="a-limit",
        ),
        pytest.param("Batch job submission failed: Unable to contact slurm controller (connect failure)", AGAIN, id="passing"),
    ],
)
def test_a_refusal_that_lasts_says_what_to_change(tmp_path: Path, words: str, fix: str) -> None:
    slurm = FakeSlurm(tmp_path / "slurm")
    slurm.program("sbatch", f"echo 'sbatch: error: {words}' >&2; exit 1")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "0:30:00", "partition": "nope"})
    project.benchmark("math", tasks=2)

    done = project.gym("submit", str(project.write()), env=slurm.env)

    assert done.returncode == 5
    assert done.stdout.splitlines()[1:] == ["  math: 2 rollouts in 1 shard: nothing submitted"]
    assert done.stderr.strip().endswith(f". {fix[0].upper()}{fix[1:]}")


LASTING = {
    "No partition specified or system default partition": "partition",
    "Requested nodes not in this partition": "partition",
    "User's group not permitted to use this partition": "partition",
    "Multiple partition job request not supported when a partition is set in the association": "partition",
    "Invalid account or account/partition combination specified": "account",
    "Invalid qos specification": "qos",
    "Requested account has breached requested QOS usage threshold": "qos",
    "Access/permission denied": "account",
    "Requested time limit is invalid (missing or exceeds some limit)": "walltime",
    "Time limit specification required, but not provided": "walltime",
    "Requested node configuration is not available": "GPUs, nodes, CPUs and memory",
    "Node count specification invalid": "nodes",
    "More processors requested than permitted": "CPUs",
    "Requested more tasks than available processors": "CPUs",
    "CPU count specification invalid": "CPUs",
    "Memory required by task is not available": "memory",
    "Memory specification can not be satisfied": "memory",
    "Invalid generic resource (gres) specification": "GPUs",
    "Invalid Trackable RESource (TRES) specification": "GPUs",
    "Invalid feature specification": "constraint",
    "Access denied to requested reservation": "reservation",
    "Requested reservation is invalid": "reservation",
    "Invalid license specification": "licenses",
    "Invalid job array specification": "shards",
    POLICY: "account, qos or partition",
    f"AssocMaxWallDurationPerJobLimit sbatch: error: Batch job submission failed: {POLICY}": "walltime",
    f"QOSMaxCpuPerJobLimit sbatch: error: Batch job submission failed: {POLICY}": "CPUs",
    f"QOSMinGRES sbatch: error: QOSMinCpuNotSatisfied sbatch: error: Batch job submission failed: {POLICY}": "CPUs",
}
PASSING = [
    "Unable to contact slurm controller (connect failure)",
    "Socket timed out on send/recv operation",
    "Zero Bytes were transmitted or received",
    "Unable to create job record, try again",
    "System submissions disabled",
    "Partition in DOWN state",
    "Required partition not available (inactive or drain)",
    "Required node not available (down, drained or reserved)",
    "Requested partition configuration not available now",
    "Slurm backup controller in standby mode",
    "Resource temporarily unavailable",
]


@pytest.mark.parametrize(("words", "key"), LASTING.items(), ids=range(len(LASTING)))
def test_what_slurm_refuses_again_names_what_to_change(words: str, key: str) -> None:
    told = what_to_do([f"sbatch: sbatch: error: Batch job submission failed: {words} (exit code 1)"])

    change, _, again = told.rpartition(", then ")
    assert change.startswith("Change ")
    assert key in change
    assert again == AGAIN


@pytest.mark.parametrize("words", PASSING)
def test_what_slurm_may_take_another_time_is_repeated(words: str) -> None:
    told = what_to_do([f"sbatch: sbatch: error: Batch job submission failed: {words} (exit code 1)"])

    assert told == "R" + AGAIN[1:]


@pytest.mark.parametrize("limit", ["AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit", "AssocGrpSubmitJobsLimit"])
def test_too_many_jobs_are_waited_for(limit: str) -> None:
    reason = f"sbatch: sbatch: error: {limit} sbatch: error: Batch job submission failed: {POLICY} (exit code 1)"

    told = what_to_do([reason, reason])

    assert told == (
        "Wait until some of your jobs have ended (squeue --me), or ask for fewer by job.pack or another qos, then " + AGAIN
    )


def test_several_refusals_are_answered_in_one_sentence() -> None:
    told = what_to_do(["Invalid qos specification", "QOSMaxSubmitJobPerUserLimit", "timed out", "Invalid qos specification"])

    assert told.startswith("Change compute's qos, and wait until some of your jobs have ended")
    assert told.count("compute's qos") == 1


def test_why_a_job_waits_is_explained_where_slurm_s_word_says_little() -> None:
    assert explained("PartitionConfig") == "PartitionConfig: it asks for more than its partition has or allows"
    assert explained("BeginTime") == "BeginTime: it starts at a later time; a requeued job is held back for two minutes"
    assert explained("Licenses") == "Licenses"
