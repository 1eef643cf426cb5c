from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agents.nemo_gym import head
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import NemoStub


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[NemoStub]:
    """Running servers, known to no earlier test."""
    monkeypatch.delenv("NEMO_GYM_CONFIG_DICT", raising=False)
    head.forget()
    with NemoStub() as running:
        yield running
    head.forget()


@pytest.fixture
def bench(tmp_path: Path, stub: NemoStub) -> NemoBench:
    return NemoBench(tmp_path, stub)
