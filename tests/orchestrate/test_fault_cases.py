"""Faults that people met when they submitted batch evaluations, one rule each: what Slurm, YAML and shells do to the unwary."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from collector.errors import ConfigError
from orchestrate.config.load import load_config
from orchestrate.config.services import VllmService
from orchestrate.config.values import slurm_time, walltime_seconds
from orchestrate.names import slug
from orchestrate.plan import batches
from orchestrate.rundir import RunDir, read_plan
from orchestrate.scheduler import SlurmScheduler
from orchestrate.service_command import command_of
from orchestrate.submissions import ShardNeed, read_submissions, shard_needs
from tests.orchestrate.fake_slurm import ACCEPT, LIST, FakeSlurm
from tests.orchestrate.project import Project, tree


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    found = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", found.env["PATH"])
    return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})


def submit(project: Project, fake: FakeSlurm, *arguments: str, **env: str) -> tuple[int, str]:
    done = project.gym("submit", str(project.write()), *arguments, env={**fake.env, **env})
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def script(project: Project) -> Path:
    return next(path for path in sorted(project.run_dir.glob("*/jobs/*/job.sh")) if "gym-finish" not in path.parent.name)


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


def test_b1_a_comma_is_a_comma_or_an_error_and_never_a_sweep(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=1)
    value = "lit:mlx5_0:1,mlx5_3:1"

    bare = submit(project, fake, f"+driver.env.NCCL_IB_HCA={value}")
    quoted = submit(project, fake, f"+driver.env.NCCL_IB_HCA='{value}'", "--resolve-only")

    assert bare[0] == 2
    assert not project.runs.exists()
    assert value in quoted[1]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    "overrides",
    [
        ("driver.benchmarks.a.shards=2", "++job.name=x=y"),
        ("++job.name=one", "++job.name=two"),
        ("~services", "~driver.policy_model"),
    ],
    ids=["a-value-with-=", "the-last-wins", "removals"],
)
def test_b4_overrides_mean_the_same_wherever_the_file_stands(
    project: Project, fake: FakeSlurm, overrides: tuple[str, ...], position: int
) -> None:
    project.benchmark("a", tasks=4, policy_base_url="http://x/v1") if "~services" in overrides else project.benchmark(
        "a", tasks=4
    )
    words = [*overrides[:position], str(project.write()), *overrides[position:]]
    first = [str(project.write()), *overrides]

    moved, usual = (project.gym("submit", *order, "--resolve-only", env=fake.env) for order in (words, first))

    assert (moved.returncode, moved.stdout, moved.stderr) == (usual.returncode, usual.stdout, usual.stderr)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"driver": {"benchmarks": {"a": {"requeu": {}}}}}, "driver.benchmarks.a.requeu: unknown key. Did you mean 'requeue'"),
        (
            {"driver": {"benchmarks": {"a": {"run": {"retry": {"max_retry": 0}}}}}},
            "driver.benchmarks.a.run.retry.max_retry: unknown key",
        ),
        ({"export": {"mlflw": {}}}, "mlflw"),
        ({"driver": {"shards": 3}}, "driver.shards: unknown key"),
        ({"services": {"policy": {"tensor_parallel_size": 2}}}, "services.policy.tensor_parallel_size: unknown key"),
    ],
)
def test_b5_a_misspelt_key_is_refused_and_nothing_is_submitted(
    project: Project, fake: FakeSlurm, change: dict[str, Any], told: str
) -> None:
    project.benchmark("a", tasks=1)
    merge(project.config, change)

    code, said = submit(project, fake)

    assert code == 2
    assert told in said
    assert not fake.jobs()


def merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="absent"), pytest.param(b"", id="empty"), pytest.param(b"- a\n", id="a-list"),
        pytest.param(b"a:\n\t- b\n", id="tabs"), pytest.param(b"job: {a: 1, a: 2}\n", id="duplicate-keys"),
        pytest.param(b"a: &a [*a]\n", id="a-loop"), pytest.param(b"a: b\n" * (1 << 20), id="five-megabytes"),
        pytest.param(b"driver: {benchmarks: {}}\n", id="no-benchmark"), pytest.param(b"driver: {benchmarks: null}\n", id="null"),
        pytest.param(b"\xff\xfe\x00", id="not-text"),
    ],
)  # fmt: skip
def test_b8_a_file_that_is_no_configuration_is_one_line(tmp_path: Path, project: Project, content: bytes | None) -> None:
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)

    done = project.gym("submit", str(path))

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not project.runs.exists()


@pytest.mark.parametrize(
    ("job", "benchmark", "exports"),
    [
        ({"atif": {"agent_version": "1"}}, {}, {"atif": {"agent_version": "1"}}),
        ({}, {"atif": {"agent_version": "2"}}, {"atif": {"agent_version": "2"}}),
        ({"atif": {"agent_version": "1"}}, {"atif": {"agent_version": "2"}}, {"atif": {"agent_version": "2"}}),
        ({"atif": {"agent_version": "1"}}, {"atif": None}, {}),
    ],
)
def test_b9_a_configured_export_reaches_the_plan(
    project: Project, fake: FakeSlurm, job: dict[str, Any], benchmark: dict[str, Any], exports: dict[str, Any]
) -> None:
    project.benchmark("a", tasks=1)
    project.config["export"] = job
    project.config["driver"]["benchmarks"]["a"]["export"] = benchmark
    submit(project, fake)

    assert read_plan(RunDir(project.run_dir)).benchmark("a").export == exports


@pytest.mark.parametrize("key", ["max_retries", "timeout", "concurrency"])
def test_b9_a_name_that_no_setting_has_is_not_swallowed(key: str) -> None:
    data = {
        "compute": {"here": {"type": "local"}},
        "driver": {"benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}, key: 3}}}},
        "job": {"output_path": "/x"},
    }

    with pytest.raises(ConfigError, match=f"driver.benchmarks.a.run.{key}: unknown key"):
        load_config(data, where=Path("x"), environ={})
