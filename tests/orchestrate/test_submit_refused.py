"""What is not submitted: previews, what cannot work, and what would mix two runs. Each is told, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrate.executors.submitit_local import DetachedLocalExecutor
from orchestrate.refusals import explained
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


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        pytest.param(
            "Batch job submission failed: Invalid partition name specified",
            "Change compute's partition (sinfo -s lists them), then run the same command again: it submits what is missing.",
            id="lasting",
        ),
        pytest.param(
            "Batch job submission failed: Job violates accounting/QOS policy",
            "Run the same command again: it submits what is missing.",
            id="passing",
        ),
    ],
)
def test_a_refusal_that_lasts_says_what_to_change(tmp_path: Path, words: str, fix: str) -> None:
    slurm = FakeSlurm(tmp_path / "slurm")
    slurm.program("sbatch", f"echo 'sbatch: error: {words}' >&2; exit 1")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "0:30:00", "partition": "nope"})
    project.benchmark("math", tasks=2)

    done = project.gym("submit", str(project.write()), env=slurm.env)

    assert done.returncode == 5
    assert done.stderr.strip().endswith(fix)


def test_a_job_that_waits_for_ever_is_explained() -> None:
    assert explained("PartitionConfig") == "PartitionConfig: it asks for more than its partition has or allows"
    assert explained("Priority") == "Priority"
