"""A machine that lacks something skips the tests that need it; CI does not."""

from __future__ import annotations

import pytest

from tests.support.requirements import require


def test_a_missing_requirement_skips_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="a cluster needs what is missing here: root, slurmctld"):
        require("a cluster", ["root", "slurmctld"])


def test_a_missing_requirement_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="missing here: root"):
        require("a cluster", ["root"])


def test_nothing_missing_lets_the_test_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    require("a cluster", [])
