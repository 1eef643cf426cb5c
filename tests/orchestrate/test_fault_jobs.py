"""Faults that people met in jobs: names, times, secrets, exit codes and containers, one rule each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from orchestrate.config.service_command import command_of
from orchestrate.config.services import VllmService
from orchestrate.config.values import slurm_time, walltime_seconds
from orchestrate.names import slug
from orchestrate.runs.directory import RunDir, read_plan
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.fault_project import script, submit
from tests.orchestrate.project import Project, tree

NAMES = ["gpqa/diamond", """mmlu: x'y "z" #1""", "a b", "$(touch PWN)", "-rf", "..", "é%j", "a\\b"]


def test_a15_names_are_data_whatever_they_contain(tmp_path: Path, fake: FakeSlurm) -> None:
    project = Project(tmp_path / """a 'b' %j""", {"type": "slurm", "walltime": "1h"})
    for name in NAMES:
        project.benchmark(name, tasks=1)

    code, said = submit(project, fake)

    assert code == 0, said
    assert [unquote(slug(name).replace("+", "%")) for name in NAMES] == NAMES
    assert read_plan(RunDir(project.run_dir)).names == NAMES
    for path in project.run_dir.glob("*/jobs/*/job.sh"):
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
        assert "%%j" in path.read_text()
    assert not list(tmp_path.rglob("PWN"))


def test_a15_names_that_would_share_a_directory_are_refused(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("Math", tasks=1)
    project.benchmark("math", tasks=1)

    assert submit(project, fake)[0] == 2


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("12:00:00", None), ("4:00:00", None), ("1:30", None), ("240", None), ("0:240:0", None), ("-5", None), ("0", None),
        ("null", None), ('"12:00:00"', 43200), ("04:00:00", 14400), ('"2-12:00:00"', 216000), ("90m", 5400),
    ],
)  # fmt: skip
def test_a16_a_walltime_is_what_it_says_or_refused(project: Project, fake: FakeSlurm, written: str, means: int | None) -> None:
    project.benchmark("a", tasks=1)
    path = project.write()
    path.write_text(
        path.read_text()
        .replace("walltime: '1:00:00'", f"walltime: {written}")
        .replace("walltime: 1:00:00", f"walltime: {written}")
    )

    done = project.gym("submit", str(path), "--dry-run", env=fake.env)

    assert (done.returncode == 0) is (means is not None), done.stderr
    if means is not None:
        assert f"--time={slurm_time(means)}" in done.stdout
        assert walltime_seconds(written.strip('"')) == means
    else:
        assert "compute.here.walltime" in done.stderr


def test_a17_absent_options_are_absent(project: Project, fake: FakeSlurm) -> None:
    project.config["compute"]["here"] |= {"qos": None, "account": "", "mem": None}
    project.config["compute"]["here"]["extra_args"] = {"gres": None, "exclusive": False, "comment": ""}
    project.benchmark("a", tasks=1)
    submit(project, fake)

    text = script(project).read_text()

    for trace in ("None", "False", "qos", "account", "gres", "exclusive", "comment"):
        assert trace not in text


def test_a19_secrets_are_nowhere_in_the_run(project: Project, fake: FakeSlurm) -> None:
    project.config["services"]["policy"]["env"] = {"HF_TOKEN": "host:HF_TOKEN"}
    project.config["driver"]["env"] = {"WANDB_API_KEY": "runtime:WANDB_API_KEY", "NOTE": "lit:plain"}
    project.benchmark("a", tasks=1)

    code, said = submit(project, fake, HF_TOKEN="hf_PROBE123", WANDB_API_KEY="hf_PROBE123")
    preview = submit(project, fake, "--dry-run", HF_TOKEN="hf_PROBE123")[1]

    assert code == 0
    assert "PROBE123" not in said + preview
    assert not [name for name, data in tree(project.root).items() if data and b"PROBE123" in data]
    assert (project.run_dir / "resolved-config.yaml").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("setup", "service", "code"),
    [
        pytest.param([], ["false"], 5, id="the-collector-fails"),
        pytest.param(["source /nowhere/activate"], ["false"], 1, id="an-early-line-fails"),
        pytest.param(["(exit 42) | cat"], ["false"], 42, id="an-early-pipe-fails"),
    ],
)
def test_a20_a_jobs_exit_code_is_that_of_what_failed(
    project: Project, fake: FakeSlurm, setup: list[str], service: list[str], code: int
) -> None:
    project.config["compute"]["here"]["setup"] = setup
    project.config["services"]["policy"]["command"] = service
    project.benchmark("a", tasks=1)
    submit(project, fake)

    done = subprocess.run(
        ["bash", str(script(project))],
        env={**os.environ, **project.environment(), "SLURM_JOB_ID": "101", "SLURM_JOB_NODELIST": "n1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == code, done.stdout + done.stderr


def test_a22_containers_are_named_by_job_and_images_and_mounts_are_unambiguous() -> None:
    service = VllmService.model_validate({"type": "vllm", "model": "m", "container": "/images/nemo.sqsh"})

    names = {command_of(service, name="policy", job=job)[5] for job in ("7_0", "7_1")}

    assert names == {"--container-name=gym-policy-7_0", "--container-name=gym-policy-7_1"}
    for options in ({"container": "nemo.sqsh"}, {"container": "/x.sqsh", "mounts": ["/a:/b,/c"]}):
        with pytest.raises(ValueError, match=r"absolute path|cannot mount"):
            VllmService.model_validate({"type": "vllm", "model": "m", **options})
