"""``skills_ref``: which skills a run offers its agents, named by their directory, their content and their front matter.

Made as NeMo Gym makes it, so that a row says the same whoever collected it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import yaml

from collector.errors import ConfigError, NotFoundError

_FILE: Final = "SKILL.md"
_HASH_DIGITS: Final = 12


def skills_ref(path: Path) -> dict[str, Any]:
    """``{path, hash, skills}`` of the directory at ``path``. Raises NotFoundError or ConfigError with what is missing."""
    if not path.is_dir():
        raise NotFoundError("there is no such directory of skills.", "Check skills.path.", path)
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir())
    if not folders:
        raise ConfigError("no skill in it.", f"Each skill is a directory with a {_FILE}.", path)
    return {"path": str(path), "hash": _digest(path), "skills": [_front_matter(folder / _FILE) for folder in folders]}


def _digest(root: Path) -> str:
    hasher = hashlib.sha256()
    for file in sorted(entry for entry in root.rglob("*") if entry.is_file()):
        for part in (file.relative_to(root).as_posix().encode(), file.read_bytes()):
            hasher.update(part)
            hasher.update(b"\0")
    return hasher.hexdigest()[:_HASH_DIGITS]


def _front_matter(path: Path) -> dict[str, Any]:
    try:
        lines = path.read_bytes().decode("utf-8-sig", "replace").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", f"Each skill is a directory with a {_FILE}.", path) from error
    marks = [number for number, line in enumerate(lines) if line.strip() == "---"]
    if len(marks) < 2 or marks[0] != 0:
        raise ConfigError("no front matter between two lines '---'.", "It holds name and description.", path)
    try:
        data = yaml.safe_load("\n".join(lines[1 : marks[1]])) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"its front matter is not YAML: {' '.join(str(error).split())}.", "", path) from error
    if not isinstance(data, dict) or not data.get("name"):
        raise ConfigError("its front matter has no name.", "", path)
    metadata = data.get("metadata")
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return {
        "name": str(data["name"]),
        "description": data.get("description"),
        "version": None if version is None else str(version),
    }
