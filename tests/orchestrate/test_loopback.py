"""An address of the machine itself, in a configuration for Slurm: told once, unless the job starts what listens there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.addresses import is_loopback
from orchestrate.config.loopback import loopback_warning
from orchestrate.submission.export_settings import export_servers
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project, tree
from tests.orchestrate.yaml_problems import config, load

HERE = "http://127.0.0.1:8000/v1"


def external(url: str) -> dict[str, Any]:
    return {"type": "external", "url": url, "served_model_name": "m"}


def warning(data: dict[str, Any], **environ: str) -> str | None:
    found = load(data, **environ).config
    return loopback_warning(found, export_servers(found, environ))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *(
            pytest.param(f"http://{host}:8000/v1", True, id=host)
            for host in (
                "localhost",
                "LocalHost.",
                "a.localhost",
                "127.0.0.1",
                "127.8.9.1",
                "127.1",
                "0.0.0.0",
                "[::1]",
                "[::]",
            )
        ),
        pytest.param("http://[::ffff:127.0.0.1]/v1", True, id="ipv4-in-ipv6"),
        pytest.param("https://localhost", True, id="no-port"),
        pytest.param("http://gpu7:8000/v1", False, id="another-host"),
        pytest.param("http://10.0.0.1:8000", False, id="another-address"),
        pytest.param("http://localhost.example.org", False, id="a-name-that-begins-so"),
        pytest.param("{services.judge.url}", False, id="a-service-of-the-job"),
        pytest.param("http://[::1", False, id="no-address"),
        pytest.param("localhost:8000", False, id="no-scheme"),
    ],
)
def test_loopback_is_known_in_all_its_forms(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_each_key_that_a_job_would_look_up_on_its_own_node_is_named_in_one_warning() -> None:
    data = config()
    data["services"] = {"m": external(HERE)}
    run = data["driver"]["benchmarks"]["math"]["run"]
    run["verifier"] = {"type": "judge", "base_url": "http://localhost:9000/v1", "model": "j"}
    data["export"] = {"mlflow": {}}

    told = warning(data, MLFLOW_TRACKING_URI="http://me:secret@[::1]:5000")

    assert told is not None
    assert f"services.m.url ({HERE}), driver.benchmarks.math.run.verifier.base_url (http://localhost:9000/v1)" in told
    assert "export.mlflow (http://**********@[::1]:5000) mean the machine that asks: each job's compute node" in told
    assert "secret" not in told


def test_a_model_without_a_service_is_looked_at_too() -> None:
    data = config()
    del data["services"], data["driver"]["policy_model"]
    data["driver"]["benchmarks"]["math"]["run"] |= {"policy_base_url": HERE, "policy_model_name": "m"}

    assert warning(data) == (
        f"driver.benchmarks.math.run.policy_base_url ({HERE}) means the machine that asks: each job's compute node, not this one"
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"services": {"m": external("http://gpu7:8000/v1")}}, id="another-host"),
        pytest.param({"compute": {"here": {"type": "local"}}}, id="on-this-machine"),
        pytest.param({"compute": {"hpc": {"type": "slurm", "walltime": "4h", "setup": ["ssh -fNL 8000:gpu7:80 gpu7"]}}}, id="setup"),
        pytest.param(
            {
                "services": {
                    "m": external(HERE),
                    "front": {"type": "command", "command": "serve --also 8000", "health_check": {"path": "/"}},
                }
            },
            id="a-command-that-names-the-port",
        ),
    ],
)  # fmt: skip
def test_what_the_job_starts_itself_and_what_runs_here_is_not_told(change: dict[str, Any]) -> None:
    data = config()
    data["services"] = {"m": external(HERE)}
    assert warning(data) is not None

    assert warning(data | change) is None


def test_a_judge_at_the_port_of_a_service_is_not_told() -> None:
    data = config()
    data["services"]["judge"] = {"type": "vllm", "model": "j", "port": 8000}
    data["driver"]["benchmarks"]["math"]["run"]["verifier"] = {"type": "judge", "base_url": HERE, "model": "j"}

    assert warning(data) is None


def test_submit_its_preview_the_doctor_and_init_say_it(project: Project, fake: FakeSlurm) -> None:
    project.config["services"] = {"policy": external(HERE)}
    project.benchmark("math", tasks=2)
    file = str(project.write())
    (project.root / "rows.jsonl").write_text('{"question": "?", "expected_answer": "1"}\n')
    told = f"services.policy.url ({HERE}) means the machine that asks: each job's compute node, not this one"

    preview, before = project.gym("submit", file, "--dry-run", "--json"), tree(project.root)
    done = project.gym("submit", file)
    found = json.loads(project.gym("doctor", "--config", file, "--json").stdout)
    begun = project.gym("init", "new.yaml", "--input", "rows.jsonl", "--model", "m", "--model-url", HERE,
                        "--compute", "slurm", "--verifier", "number")  # fmt: skip

    assert (preview.returncode, done.returncode) == (0, 0), done.stderr
    assert all(said.stderr.count("gym eval submit: warning: ") == said.stderr.count(told) == 1 for said in (preview, done))
    assert json.loads(preview.stdout)["run"]
    assert "submit.yaml" in before
    (finding,) = (finding for finding in found if finding["subject"] == "addresses")
    assert (finding["level"], finding["text"]) == ("warn", told)
    assert begun.returncode == 0, begun.stderr
    assert f"gym eval init: warning: services.model.url ({HERE})" in begun.stderr, begun.stderr
