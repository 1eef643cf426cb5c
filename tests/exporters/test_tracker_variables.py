"""MLflow's and W&B's own variables: settings win over them, and what they say is looked at before anything is submitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from exporters.base import SwitchedOff
from exporters.registry import make_exporter
from exporters.trackers.wandb import WandbExporter
from tests.exporters.made_runs import merged_run
from tests.orchestrate.project import Project, tree

SECRET = "pass%2Dw0rd"
NEEDED: dict[str, dict[str, Any]] = {"mlflow": {}, "wandb": {"project": "p"}}
VARIABLES = {"mlflow": "MLFLOW_TRACKING_URI", "wandb": "WANDB_BASE_URL"}


def problem(name: str, environ: dict[str, str], *, is_whole: bool = True, settings: dict[str, str] | None = None) -> str | None:
    exporter = make_exporter(name, {**NEEDED[name], **(settings or {})}, RunArtifacts(Path("r.jsonl")), environ=environ)
    return exporter.environment_problem(is_whole=is_whole)


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
@pytest.mark.parametrize(
    ("address", "told"),
    [
        pytest.param("http://tracker:99999", "its port is not a number from 1 to 65535", id="port"),
        pytest.param("http://me:pass%2Dw0rd@tracker:99999", "its port is not a number", id="port-behind-a-login"),
        pytest.param("http://tracker/?key=pass%2Dw0rd", "has a query, which no server's address has", id="query"),
        pytest.param("http://", "is not an http or https URL", id="no-host"),
        pytest.param("http://tracker:5000\n", "has a space", id="line-break"),
        pytest.param("tracker:5000", "", id="no-scheme"),
    ],
)
def test_a_wrong_address_in_a_variable_is_told_by_the_variable_s_name(name: str, address: str, told: str) -> None:
    found = problem(name, {VARIABLES[name]: address})

    assert found is not None
    assert found.startswith(f"the address in {VARIABLES[name]} {told}")
    assert SECRET not in found
    # What a setting names is asked instead.
    key = {"mlflow": "tracking_uri", "wandb": "base_url"}[name]
    assert problem(name, {VARIABLES[name]: address}, settings={key: "http://h"}) is None


@pytest.mark.parametrize(
    ("name", "address"),
    [
        pytest.param("mlflow", "http://me:pass%2Dw0rd@tracker:5000", id="a-login"),
        pytest.param("wandb", "https://me:pass%2Dw0rd@tracker", id="a-login-of-wandb"),
        pytest.param("mlflow", "postgresql://me:pass%2Dw0rd@db/mlflow?password=x", id="a-database-with-a-query"),
        pytest.param("mlflow", "./mlruns", id="a-folder"),
        pytest.param("mlflow", "databricks", id="a-name-of-its-own"),
        pytest.param("wandb", "", id="an-empty-variable"),
    ],
)
def test_what_the_client_takes_is_taken_from_a_variable(name: str, address: str) -> None:
    assert problem(name, {VARIABLES[name]: address}) is None


def test_an_address_that_nobody_named_is_told_where_the_variables_are_all_known() -> None:
    assert problem("mlflow", {}) == "tracking_uri: is missing: set it, or MLFLOW_TRACKING_URI"
    assert problem("mlflow", {}, is_whole=False) is None


@pytest.mark.parametrize(
    ("settings", "word", "mode"),
    [
        pytest.param({}, None, "online", id="nothing-said"),
        pytest.param({}, "", "online", id="an-empty-variable"),
        pytest.param({}, "offline", "offline", id="the-variable"),
        pytest.param({}, "dryrun", "offline", id="an-older-word"),
        pytest.param({"mode": "online"}, "offline", "online", id="the-setting-wins"),
        pytest.param({"mode": "offline"}, "disabled", "offline", id="the-setting-wins-over-disabled"),
    ],
)
def test_the_mode_is_the_setting_s_then_the_variable_s(settings: dict[str, str], word: str | None, mode: str) -> None:
    environ = {} if word is None else {"WANDB_MODE": word}
    values = {"project": "p", **settings}

    settled = WandbExporter.settled(values, environ)
    exporter = make_exporter("wandb", values, RunArtifacts(Path("r.jsonl")), environ=environ)

    assert not isinstance(settled, SwitchedOff)
    assert settled.get("mode", "online") == mode
    assert exporter.destination.startswith("https://api.wandb.ai/p " if mode == "online" else "offline/p ")
    assert exporter.environment_problem() is None


@pytest.mark.parametrize(
    ("word", "told"),
    [
        pytest.param("disabled", "W&B is switched off by WANDB_MODE=disabled: set mode to online or offline", id="disabled"),
        pytest.param("Offline!", "WANDB_MODE is 'Offline!', and not online, offline or disabled", id="no-word-of-theirs"),
    ],
)
def test_an_export_by_hand_says_why_it_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, told: str
) -> None:
    monkeypatch.setenv("WANDB_MODE", word)
    artifacts = merged_run(tmp_path / "b")

    result = make_exporter("wandb", {"project": "p"}, artifacts).export(artifacts)

    assert (result.is_success, result.message) == (False, f"{told}.")
    assert not (tmp_path / "b" / "rollouts_wandb").exists()


def test_a_submitted_run_goes_offline_by_the_variable_and_stays_so(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=2)
    project.config["export"] = {"wandb": {"project": "p"}}
    # Jobs export in the shell's variables and in these.
    project.config["driver"]["env"] = {"WANDB_MODE": "lit:offline"}

    said = project.submit("--wait")

    plan = json.loads((project.run_dir / "plan.json").read_text())
    assert plan["benchmarks"][0]["export"]["wandb"]["mode"] == "offline"
    assert f"\n  offline/p {project.run_dir / 'math' / 'rollouts_wandb'}" in said
    # Whatever the shell says later.
    assert "export wandb succeeded" in project.gym("status", env={"WANDB_MODE": "online"}).stdout


def test_a_run_that_is_submitted_with_wandb_disabled_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=2)
    project.config["export"] = {"wandb": {"project": "p"}}

    done = project.gym("submit", str(project.write()), "--wait", env={"WANDB_MODE": "disabled"})

    assert done.returncode == 0, done.stderr
    assert "gym eval submit: note: export.wandb is left out: WANDB_MODE is disabled\n" in done.stderr
    assert json.loads((project.run_dir / "plan.json").read_text())["benchmarks"][0]["export"] == {}


@pytest.mark.parametrize(
    ("export", "environ", "told"),
    [
        pytest.param({"mlflow": {}}, {"MLFLOW_TRACKING_URI": "http://t:99999"}, "export.mlflow: the address in", id="mlflow"),
        pytest.param({"mlflow": {}}, {}, "export.mlflow: tracking_uri: is missing", id="mlflow-missing"),
        pytest.param({"wandb": {"project": "p"}}, {"WANDB_BASE_URL": "t:80"}, "export.wandb: the address in", id="wandb"),
        pytest.param({"wandb": {"project": "p"}}, {"WANDB_MODE": "of"}, "export.wandb: WANDB_MODE is 'of'", id="mode"),
    ],
)
def test_a_wrong_variable_is_told_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: dict[str, Any], environ: dict[str, str], told: str
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_BASE_URL", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=2)
    project.config["export"] = export
    file = project.write()
    before = tree(project.root)

    done = project.gym("submit", str(file), env=environ)

    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert tree(project.root) == before


def test_an_export_that_went_where_the_jobs_variables_say_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=2)
    project.config["export"] = {"mlflow": {}}
    project.config["driver"]["env"] = {"MLFLOW_TRACKING_URI": f"lit:{tmp_path / 'kept'}"}

    project.submit("--wait")

    assert (tmp_path / "kept").is_dir()
    assert "1 final" in project.submit()
    again = project.gym("export", str(project.run_dir))
    assert (again.returncode, "already exported" in again.stdout) == (0, True), again.stdout
