"""Commands that read files under the limits of a shared machine: no thread that nobody uses, and memory that is short is told."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrate.cli.machine_limits import NO_MEMORY, one_thread_for_matrices
from orchestrate.cli.main import main
from tests.merge.legacy_files import asked, row, write

ROOT = Path(__file__).parents[2]
COUNT_THREADS = """
import os, sys
from orchestrate.cli.machine_limits import NO_MEMORY, one_thread_for_matrices
from orchestrate.cli.main import main
code = main(sys.argv[1:])
import numpy, scipy.special
print(code, len(os.listdir("/proc/self/task")))
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    questions = [asked(task, repeat) for task in range(3) for repeat in range(3)]
    return write(tmp_path / "in.jsonl", [row(task, repeat) for task in range(3) for repeat in range(3)], inventory=questions)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor no library starts threads")
def test_a_merge_has_one_thread_however_many_processors_there_are(rows: Path) -> None:
    """Where a limit on processes allowed no thread more, the merge ended as interrupted; where one on memory did, without end."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    words = ["eval", "aggregate", str(rows), "-o", str(rows.with_name("out.jsonl"))]

    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "0 1"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(MemoryError(), id="of-python"),
        pytest.param(ImportError("libx.so: failed to map segment from shared object"), id="of-the-loader"),
    ],
)
def test_memory_that_is_short_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def refused(_name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", refused)

    assert main(["eval", "merge"]) == 5
    assert capsys.readouterr().err == (
        "gym eval merge: there is not enough memory. Allow it more (ulimit -v), or use another machine.\n"
    )


def test_a_module_that_is_not_there_is_no_matter_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_name: str) -> None:
        raise ImportError("No module named 'x'")

    monkeypatch.setattr(importlib, "import_module", refused)

    with pytest.raises(ImportError, match="No module"):
        main(["eval", "merge"])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one processor no library starts threads")
@pytest.mark.parametrize("command", ["submit", "resubmit", "reverify", "init", "export"])
def test_a_command_that_calculates_on_the_way_starts_no_threads_for_it(tmp_path: Path, command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = COUNT_THREADS.replace(
        "code = main(sys.argv[1:])", "try:\n    code = main(sys.argv[1:])\nexcept SystemExit:\n    code = 2"
    )

    done = subprocess.run(
        [sys.executable, "-c", code.replace(", scipy.special", ""), "eval", command, "nope"],
        cwd=ROOT,
        env={**environment, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1].split()[1] == "1"


def test_programs_that_are_started_later_have_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)

    with one_thread_for_matrices():
        assert os.environ["OPENBLAS_NUM_THREADS"] == "1"

    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_number_of_threads_that_somebody_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")

    with one_thread_for_matrices():
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"

    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize("command", ["run", "submit", "resubmit", "reverify", "init", "export", "merge", "compare", "report"])
def test_too_little_address_space_is_told_before_a_library_hangs_on_it(command: str) -> None:
    """With 160 to 220 MB numpy ended the program with words of its own, called it interrupted, or never returned."""
    limits = f"ulimit -v 176000; exec {sys.executable} -m orchestrate.cli.main eval {command}"

    done = subprocess.run(["bash", "-c", f"{limits} nope"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    helped = subprocess.run(["bash", "-c", f"{limits} --help"], cwd=ROOT, capture_output=True, check=False, timeout=30)

    assert (done.returncode, done.stderr) == (5, f"gym eval {command}: {NO_MEMORY}\n")
    assert helped.returncode == 0
