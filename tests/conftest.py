"""Fixtures that every area of the tests may use: a model server and private Slurm clusters."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import SlurmCluster, missing_requirements
from tests.support.model_server import ModelServer


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[ModelServer]:
    """A running deterministic model server in mode ``ok``, its log in a folder of its own."""
    directory = tmp_path / "model_server"
    directory.mkdir()
    with ModelServer(directory) as server:
        yield server


@contextmanager
def booted(directory: Path, *, accounting: bool = False, **settings: int) -> Generator[SlurmCluster]:
    """A started cluster of a test's own; the test is skipped, or fails under CI, where a cluster cannot be."""
    missing = missing_requirements(accounting=accounting)
    if missing:
        reason = f"a private Slurm cluster needs what is missing here: {', '.join(missing)}"
        # Where everything is installed for the tests, a silent skip would hide that they no longer run.
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    cluster = SlurmCluster(directory, accounting=accounting, **settings)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


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
