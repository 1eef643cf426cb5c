"""A first YAML that can be submitted as it stands, and a doctor that finds what would keep a run from working."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrate.doctor.cluster import check_cluster
from orchestrate.doctor.finding import Level
from orchestrate.doctor.packages import check_packages
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(120)

MODEL = ["--model", "test-model", "--model-url", "http://127.0.0.1:9/v1"]
CONFIG = """AccountingStorageType   = {accounting}
ClusterName             = mill
DependencyParameters    = {dependencies}
JobRequeue              = 1
KillWait                = {kill_wait} sec
MaxArraySize            = {arrays}
MaxJobCount             = 100
MinJobAge               = 300 sec
PreemptMode             = {preemption}
PreemptType             = preempt/partition_prio
SLURM_VERSION           = 22.05.8
"""


def dataset(project: Project, row: dict[str, object]) -> str:
    path = project.root / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for _ in range(3)))
    return str(path)


def on_terminal(project: Project, arguments: list[str], answers: list[str]) -> str:
    """What ``gym eval ARGUMENTS`` writes to a terminal on which ``answers`` are typed; it has to end with 0."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrate.cli.main", "eval", *arguments],
        cwd=project.root,
        env=project.environment(),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        os.close(slave)
        os.write(master, "".join(f"{answer}\n" for answer in answers).encode())
        said, _ = process.communicate(timeout=60)
        os.close(master)
    assert process.returncode == 0, said
    return said


def scontrol(fake: FakeSlurm, **facts: object) -> None:
    values = {
        "accounting": "(null)",
        "dependencies": "(null)",
        "kill_wait": 30,
        "arrays": 1001,
        "preemption": "REQUEUE",
        **facts,
    }
    (fake.directory / "config").write_text(CONFIG.format(**values))
    fake.program("scontrol", 'cat "$HERE/config"')
    fake.program("scancel", "exit 0")


def levels(shards: int = 0) -> dict[str, Level]:
    return {finding.subject: finding.level for finding in check_cluster(None, shards=shards)}


@pytest.mark.parametrize(
    ("row", "more"),
    [
        pytest.param({"question": "1+1?", "expected_answer": "2"}, ["--verifier", "number"], id="plain-fields"),
        pytest.param(
            {"responses_create_params": {"input": "hi"}, "expected_answer": "hi"}, ["--benchmark", "a: b"], id="whole-requests"
        ),
        pytest.param(
            {"q": "1?", "expected_answer": "1"}, ["--prompt", '{q}: say "it" # now\nplease'], id="prompt-of-one's-own"
        ),
    ],
)  # fmt: skip
def test_what_init_writes_passes_a_dry_run(project: Project, row: dict[str, object], more: list[str]) -> None:
    written = project.gym("init", "--compute", "local", "--input", dataset(project, row), *MODEL, *more)

    assert written.returncode == 0, written.stderr
    dry = project.gym("submit", "eval.yaml", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert " 3 " in dry.stdout


def test_init_for_slurm_keeps_the_walltime_a_text(project: Project) -> None:
    rows = dataset(project, {"question": "1+1?", "expected_answer": "2"})

    written = project.gym(
        "init", "--compute", "slurm", "--partition", "batch", "--walltime", "12:00:00", "--input", rows, *MODEL
    )

    assert written.returncode == 0, written.stderr
    resolved = json.loads(project.gym("submit", "eval.yaml", "--resolve-only", "--json").stdout)
    assert resolved["compute"]["cluster"]["walltime"] == "12:00:00"
    assert resolved["compute"]["cluster"]["partition"] == "batch"


@pytest.mark.parametrize("is_there", [True, False], ids=["sbatch", "no-sbatch"])
def test_init_says_what_it_chose_unasked(project: Project, tmp_path: Path, is_there: bool) -> None:
    rows = dataset(project, {"question": "1+1?", "expected_answer": "2"})
    fake = FakeSlurm(tmp_path / "bin")
    path = fake.env["PATH"] if is_there else str(tmp_path / "empty")

    done = project.gym("init", "--input", rows, *MODEL, env={"PATH": path})

    assert done.returncode == 0, done.stderr
    assert ("compute: slurm, since sbatch is found here" in done.stdout) is is_there
    assert ("compute: local, since there is no sbatch here" in done.stdout) is not is_there
    assert "prompt:  {question}, since the rows have no responses_create_params" in done.stdout
    assert "grading: exact_match" in done.stdout


def test_init_on_a_terminal_asks_again_at_each_wrong_answer(project: Project) -> None:
    dataset(project, {"task": "1+1?", "expected_answer": "2"})
    answers = ["nowhere.jsonl", "sums.jsonl", "{task}", "test-model", "ftp://x", "http://127.0.0.1:9/v1", "numbr", "number"]

    said = on_terminal(project, ["init"], [*answers, "here", "local"])

    assert "nowhere.jsonl: cannot be read" in said
    assert "a row has: task, expected_answer" in said
    assert "--model-url: is not an http or https URL" in said
    assert "Did you mean 'number'" in said
    assert "'here' is neither local nor slurm" in said
    resolved = json.loads(project.gym("submit", "eval.yaml", "--resolve-only", "--json").stdout)
    assert resolved["driver"]["benchmarks"]["sums"]["run"]["prompt_config"] == {"user": "{task}"}
    assert resolved["compute"]["here"]["type"] == "local"


def test_init_without_a_terminal_names_the_flag_that_is_missing(project: Project) -> None:
    done = project.gym("init", "--compute", "local")

    assert done.returncode == 2
    assert "--input is missing" in done.stderr
    assert not (project.root / "eval.yaml").exists()


def test_init_replaces_nothing_unless_told(project: Project) -> None:
    (project.root / "eval.yaml").write_text("mine")
    rows = dataset(project, {"question": "1+1?", "expected_answer": "2"})

    refused = project.gym("init", "--compute", "local", "--input", rows, *MODEL)

    assert refused.returncode == 4
    assert (project.root / "eval.yaml").read_text() == "mine"


def test_init_writes_nothing_that_cannot_be_submitted(project: Project) -> None:
    rows = dataset(project, {"question": "1+1?", "expected_answer": "2"})

    done = project.gym("init", "--compute", "local", "--input", rows, *MODEL, "--verifier", "numbr")

    assert done.returncode == 2
    assert "Did you mean 'number'" in done.stderr
    assert not (project.root / "eval.yaml").exists()


def test_the_doctor_finds_nothing_wrong_here(project: Project) -> None:
    project.benchmark("math", tasks=2)

    done = project.gym("doctor", "--config", str(project.write()), "--json")

    assert done.returncode == 0, done.stdout
    found = {finding["subject"]: finding["level"] for finding in json.loads(done.stdout)}
    assert found["configuration"] == found["storage: lock"] == found["storage: replace"] == "ok"
    assert not project.runs.exists()


def test_the_doctor_leaves_no_directory_behind(project: Project) -> None:
    done = project.gym("doctor", "--path", "new/runs")

    assert f"{project.root / 'new' / 'runs'} (not there yet; looked at {project.root})" in done.stdout
    assert "storage: lock" in done.stdout
    assert list(project.root.iterdir()) == []


def test_a_path_that_cannot_be_written_fails(project: Project) -> None:
    (project.root / "file").write_text("")

    done = project.gym("doctor", "--path", str(project.root / "file" / "runs"))

    assert done.returncode == 5
    assert "fail  storage" in done.stdout


def test_a_broken_configuration_is_a_finding_and_the_rest_is_still_looked_at(project: Project) -> None:
    project.benchmark("math", tasks=2, num_repeatz=2)

    done = project.gym("doctor", "--config", str(project.write()))

    assert done.returncode == 5
    assert "num_repeatz" in done.stdout
    assert "storage: lock" in done.stdout


def test_a_distribution_with_our_names_is_named() -> None:
    found = check_packages({"merge": ["gym-eval", "merge"], "exporters": ["gym_eval"]})

    assert [(finding.level, finding.text) for finding in found if "merge also" in finding.text] == [
        (Level.FAIL, "merge also has a package 'merge'")
    ]
    assert not any("exporters" in finding.text for finding in found)


@pytest.mark.parametrize(
    ("facts", "subject", "level"),
    [
        pytest.param({}, "accounting", Level.WARN, id="no-accounting"),
        pytest.param({}, "dependencies", Level.WARN, id="dependencies-stay"),
        pytest.param({"dependencies": "kill_invalid_depend"}, "dependencies", Level.OK, id="dependencies-go"),
        pytest.param({}, "preemption", Level.OK, id="requeued"),
        pytest.param({"preemption": "CANCEL"}, "preemption", Level.WARN, id="cancelled"),
        pytest.param({"preemption": "SUSPEND,GANG"}, "preemption", Level.WARN, id="suspended"),
        pytest.param({"kill_wait": 1}, "grace", Level.WARN, id="killed-at-once"),
        pytest.param({"arrays": 0}, "limits", Level.FAIL, id="no-arrays"),
    ],
)
def test_what_a_cluster_does_with_jobs_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, object], subject: str, level: Level
) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    scontrol(fake, **facts)
    monkeypatch.setenv("PATH", fake.env["PATH"])

    assert levels()[subject] is level


def test_more_shards_than_the_queue_holds_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    scontrol(fake)
    monkeypatch.setenv("PATH", fake.env["PATH"])

    assert levels(shards=101)["limits"] is Level.FAIL
    assert levels(shards=100)["limits"] is Level.OK


def test_a_controller_that_does_not_answer_fails_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    scontrol(fake)
    fake.program("scontrol", "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1")
    monkeypatch.setenv("PATH", fake.env["PATH"])

    (found,) = check_cluster(None, shards=1)

    assert found.level is Level.FAIL
    assert "Unable to contact slurm controller" in found.text


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param(["--shards", "7", "--repeats", "2"], "--shards: 7 shards for 6 rollouts. Ask for fewer.", id="too-many"),
        pytest.param(["--shards", "0"], "--shards: must be at least 1, not 0.", id="none"),
        pytest.param(["--repeats", "-1"], "--repeats: must be at least 1, not -1.", id="less-than-none"),
    ],
)
def test_init_writes_nothing_that_submit_refuses(tmp_path: Path, flags: list[str], told: str) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    rows = dataset(project, {"question": "1+1?", "expected_answer": "2"})

    done = project.gym("init", "new.yaml", "--input", rows, *MODEL, *flags)

    assert done.returncode == 2
    assert done.stderr == f"gym eval init: {told}\n"
    assert not (project.root / "new.yaml").exists()


@pytest.mark.parametrize("command", [["export", "csv", "sums.jsonl"], ["report", "sums.jsonl"]], ids=["export", "report"])
def test_a_dataset_is_taken_for_no_rollouts(tmp_path: Path, command: list[str]) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    dataset(project, {"question": "1+1?", "expected_answer": "2"})

    done = project.gym(*command)

    assert done.returncode == 2
    assert "sums.jsonl: its rows are no rollouts: the first has neither a response nor a reward." in done.stderr
    assert [path.name for path in project.root.iterdir() if path.is_file()] == ["sums.jsonl"]
