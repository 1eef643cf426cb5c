"""Saved rollouts of other people: the example files inside the nemo-gym wheel, downloaded once by pip."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "0.7.0"
#: A directory that keeps the wheel between test runs; the user's cache unless this variable names another.
CACHE = Path(os.environ.get("GYM_EVAL_WHEEL_CACHE") or Path.home() / ".cache" / "gym-eval")


def missing_wheel() -> list[str]:
    """What keeps the wheel from being had; empty when it is there."""
    return [] if _found() or _download() else [f"nemo-gym {VERSION} (pip download)"]


def unpack_rollouts(directory: Path) -> list[Path]:
    """Every ``*rollouts.jsonl`` of the wheel as a file of its own in ``directory``."""
    paths: list[Path] = []
    with zipfile.ZipFile(_found()[0]) as wheel:
        for name in wheel.namelist():
            if name.endswith("rollouts.jsonl"):
                paths.append(directory / name.replace("/", "__"))
                paths[-1].write_bytes(wheel.read(name))
    return paths


def unpack_with_companions(directory: Path) -> list[Path]:
    """Every rollouts file of the wheel, whatever ends its name, with what lies beside it; none is a companion itself."""
    companions = ("_materialized_inputs.jsonl", "_reward_profiling.jsonl", "_failures.jsonl")
    with zipfile.ZipFile(_found()[0]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".jsonl") and "rollouts" in name.rsplit("/", 1)[1]]
        wheel.extractall(directory, names)
    return sorted(directory / name for name in names if not name.endswith(companions))


def _found() -> list[Path]:
    return sorted(CACHE.glob(f"nemo_gym-{VERSION}-*.whl"))


def _download() -> bool:
    # Its own Python is newer than ours may be, and its dependencies are a gigabyte: only the file itself is wanted.
    options = ["--no-deps", "--ignore-requires-python", "--dest", str(CACHE)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, f"nemo-gym=={VERSION}"]
    return subprocess.run(command, check=False, timeout=50).returncode == 0 and bool(_found())
