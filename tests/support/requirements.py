"""What a test needs of its machine: without it the test is skipped, or fails where CI is set."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import SlurmCluster, missing_requirements


def require(what: str, missing: list[str]) -> None:
    """Skip the test when something is missing; under CI fail it."""
    if missing:
        reason = f"{what} needs what is missing here: {', '.join(missing)}"
        # Where everything is installed for the tests, a silent skip would hide that they no longer run.
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def booted(directory: Path, *, accounting: bool = False, **settings: int) -> Generator[SlurmCluster]:
    """A started cluster of a test's own; the test is skipped, or fails under CI, where a cluster cannot be."""
    require("a private Slurm cluster", missing_requirements(accounting=accounting))
    cluster = SlurmCluster(directory, accounting=accounting, **settings)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
