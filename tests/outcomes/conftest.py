"""The scripted plug-ins are installed for every test here, and each test has a bench of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.outcomes.bench import Bench, install

install()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """An empty bench: a dataset, a configuration, and ways to run them."""
    return Bench(tmp_path)
