"""Addresses of MLflow and W&B are checked like every other address: under their key, unread, before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from exporters.registry import make_exporter
from tests.orchestrate.project import Project, tree

KEYS = {"mlflow": "tracking_uri", "wandb": "base_url"}
NEEDED = {"mlflow": {}, "wandb": {"project": "p"}}
PORT = "its port is not a number from 1 to 65535"
SECRET = "must not carry a user, a password or a query: leave them to the environment"
SIGN = "has a space"


def refusal(name: str, address: str) -> str:
    """What is said of the address, behind its key."""
    with pytest.raises(ConfigError) as refused:
        make_exporter(name, {**NEEDED[name], KEYS[name]: address}, RunArtifacts(Path("r.jsonl")))
    said = str(refused.value)
    key = f"export.{name}.{KEYS[name]}: "
    assert said.startswith(key)
    assert "sekret1" not in said
    assert len(said.splitlines()) == 1
    return said.removeprefix(key)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(
    ("address", "told"),
    [
        pytest.param("http://tracker:99999", PORT, id="port-out-of-range"),
        pytest.param("http://tracker:0", PORT, id="port-0"),
        pytest.param("http://tracker:sekret1", PORT, id="port-is-no-number"),
        pytest.param("http://tracker :5000", SIGN, id="space"),
        pytest.param("https://tracker:5000 ", SIGN, id="space-behind"),
        pytest.param(" https://tracker:5000", SIGN, id="space-before"),
        pytest.param("https://trac\nker:5000", SIGN, id="line-break"),
        pytest.param("http://me:sekret1@tracker", SECRET, id="password"),
        pytest.param("http://sekret1@tracker", SECRET, id="token"),
        pytest.param("http://tracker/?api_key=sekret1", SECRET, id="query"),
        pytest.param("http://", "is not an http or https URL", id="no-host"),
        pytest.param("http://[::1", "is not an http or https URL", id="half-an-ipv6-address"),
    ],
)
def test_an_address_nobody_can_be_asked_at_is_refused(name: str, address: str, told: str) -> None:
    assert refusal(name, address).startswith(told)


@pytest.mark.parametrize("address", ["tracker:5000", "tracker:5000/api", "127.0.0.1:5000", "http:tracker", "https:/tracker"])
def test_an_address_without_its_scheme_is_refused(address: str) -> None:
    assert refusal("mlflow", address).startswith("has no http:// or https:// in front")
    assert refusal("wandb", address).startswith("is not an http or https URL")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        pytest.param("postgresql://me:sekret1@h/db", "holds a user or a password", id="login"),
        pytest.param("postgresql://h/db?password=sekret1", "holds a user or a password", id="parameter"),
        pytest.param("postgresql://h:99999/db", PORT, id="port"),
        pytest.param("ftp\n://h", SIGN, id="line-break"),
    ],
)
def test_a_database_is_an_address_too(address: str, told: str) -> None:
    assert refusal("mlflow", address).startswith(told)


@pytest.mark.parametrize(
    "address",
    [
        "http://tracker:5000",
        "HTTPS://tracker/mlflow/",
        "http://[::1]:5000",
        "mlruns",
        "./tracker:5000",
        "/shared/my runs",
        "file:///shared/my runs",
        "sqlite:////shared/my runs/mlflow.db",
        "postgresql://h:5432/db?sslmode=require",
        "databricks",
        "databricks://profile",
    ],
)
def test_every_place_of_mlflow_is_taken(address: str) -> None:
    make_exporter("mlflow", {"tracking_uri": address}, RunArtifacts(Path("r.jsonl")))


def test_a_wrong_address_is_told_before_anything_is_submitted(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", {"type": "local"})
    project.benchmark("math", tasks=2)
    project.config["export"] = {"mlflow": {"tracking_uri": "http://tracker:99999"}}
    project.write()
    before = tree(project.root)

    said = project.submit(code=2)

    assert f"export.mlflow.tracking_uri: {PORT}" in said
    assert len(said.splitlines()) == 1
    assert tree(project.root) == before
