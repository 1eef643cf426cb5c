"""The scripted agent is installed for every test of the collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agents.nemo_gym import head
from tests.nemo.bench import NemoBench
from tests.support import testkit
from tests.support.nemo_stub import NemoStub

testkit.install()


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[NemoStub]:
    """Running servers of a NeMo Gym, known to no earlier test."""
    monkeypatch.delenv(head.CONFIG_VARIABLE, raising=False)
    head.forget()
    with NemoStub() as servers:
        yield servers
    head.forget()


@pytest.fixture
def bench(tmp_path: Path, stub: NemoStub) -> NemoBench:
    return NemoBench(tmp_path, stub)
