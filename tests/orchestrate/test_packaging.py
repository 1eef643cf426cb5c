"""What a clone of the repository holds and what a wheel of it has: every module, whatever its folder is called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("collector", "exporters", "merge", "orchestrate", "slurm_templates")


def sources() -> list[Path]:
    """Every module of the product, relative to the repository."""
    found = [path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    assert len(found) > 100
    return found


def test_every_folder_with_modules_is_a_package_or_no_wheel_would_have_it() -> None:
    assert [str(path) for path in sources() if not (ROOT / path).with_name("__init__.py").exists()] == []


def test_no_module_is_ignored_by_git() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no clone")
    listed = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=ROOT,
        input="\n".join(map(str, sources())),
        capture_output=True,
        text=True,
        check=False,
    )

    assert listed.stdout.splitlines() == []
    assert listed.returncode == 1, listed.stderr
