"""One real MLflow server for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.exporters.mlflow_server import MlflowServer


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("mlflow")) as server:
        yield server
