"""Fixtures that every area of the tests may use: a model server, and later real clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import ModelServer


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[ModelServer]:
    """A running deterministic model server in mode ``ok``, its log in a folder of its own."""
    directory = tmp_path / "model_server"
    directory.mkdir()
    with ModelServer(directory) as server:
        yield server
