"""Cluster files: compute entries that one user's submit YAMLs share, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.errors import ConfigError, NotFoundError
from orchestrate.config.yaml_file import read_yaml
from orchestrate.names import slug


def cluster_directory(environ: Mapping[str, str]) -> Path:
    """``${XDG_CONFIG_HOME:-~/.config}/gym-eval/clusters``."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gym-eval" / "clusters"


def with_cluster(data: Mapping[str, Any], name: str, *, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """``data`` with the file of cluster ``name`` as its only compute entry; keys that ``data`` gives to that entry win.

    Raises NotFoundError with the clusters there are, ConfigError when the file is not one entry's keys.
    """
    directory = cluster_directory(environ)
    path = directory / f"{name}.yaml"
    if slug(name) != name or not path.is_file():
        known = ", ".join(sorted(found.stem for found in directory.glob("*.yaml"))) or "none"
        raise NotFoundError(f"there is no cluster {name!r}.", f"Clusters here: {known}. Each is a file NAME.yaml.", directory)
    entry = read_yaml(path)
    if "type" not in entry:
        raise ConfigError("type: is missing.", "A cluster file holds the keys of one compute entry, such as type: slurm.", path)
    compute = data.get("compute")
    own = compute.get(name) if isinstance(compute, Mapping) else None
    return {**data, "compute": {name: {**entry, **(own if isinstance(own, Mapping) else {})}}}
