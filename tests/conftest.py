"""Fixtures that every area of the tests may use: a model server, private Slurm clusters and a real small model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import SlurmCluster
from tests.support.model_server import ModelServer
from tests.support.requirements import booted, require
from tests.support.small_model import SmallModel, missing_packages, serve_small_model


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[ModelServer]:
    """A running deterministic model server in mode ``ok``, its log in a folder of its own."""
    directory = tmp_path / "model_server"
    directory.mkdir()
    with ModelServer(directory) as server:
        yield server


@pytest.fixture(scope="session")
def _slurm_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with booted(tmp_path_factory.mktemp("slurm"), accounting=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _slurm_accounting_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with booted(tmp_path_factory.mktemp("slurmdbd"), accounting=True) as cluster:
        yield cluster


@pytest.fixture
def slurm(_slurm_session: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The worker's cluster without accounting, empty and idle; SLURM_CONF points at it while the test runs."""
    monkeypatch.setenv("SLURM_CONF", _slurm_session.env["SLURM_CONF"])
    yield _slurm_session
    _slurm_session.reset()


@pytest.fixture
def slurm_accounting(_slurm_accounting_session: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The same with slurmdbd, so that sacct answers; the account ``research`` exists."""
    monkeypatch.setenv("SLURM_CONF", _slurm_accounting_session.env["SLURM_CONF"])
    yield _slurm_accounting_session
    _slurm_accounting_session.reset()


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallModel]:
    """The worker's real language model, ready to answer."""
    require("the small model", missing_packages())
    with serve_small_model(tmp_path_factory.mktemp("small_model")) as model:
        yield model
