"""Ctrl-C while the program starts: exit code 130 and no traceback, whatever code the interrupt meets."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrate.cli.main import main
from tests.support import testkit

# SIGINT when the n-th module is about to be imported, counted from the first line of the entry point.
STARTED = """
import os, signal, sys
from orchestrate.cli.main import main

left = int(sys.argv.pop(1))

def hook(event, arguments):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
try:
    code = main()
finally:
    print("left", left)
sys.exit(code)
"""
MANY = 10**6
#: Moments at which a start is interrupted: at each of its first imports, and at so many others until its end.
FIRST, OTHERS = 6, 14


def start(moment: int, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", STARTED, str(moment), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=testkit.environment(), timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--version"], id="version"),
        pytest.param(["eval", "submit", "eval.yaml", "--dry-run"], id="submit"),
        pytest.param(["eval", "status", "nothing"], id="status"),
    ],
)
def test_sigint_at_many_moments_of_a_start_ends_with_130_and_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "eval.yaml").write_text("driver: {benchmarks: {}}\n")
    imports = MANY - int(start(MANY, *arguments, cwd=tmp_path).stdout.split()[-1])
    moments = sorted({*range(1, FIRST + 1), *range(FIRST, imports, max(1, imports // OTHERS))} & set(range(1, imports + 1)))

    ends = {moment: start(moment, *arguments, cwd=tmp_path) for moment in moments}

    assert moments
    wrong = {moment: (done.returncode, done.stderr) for moment, done in ends.items() if done.returncode != 130}
    assert wrong == {}
    told = {"", f"gym eval {arguments[1]}: interrupted\n" if len(arguments) > 1 else ""}
    assert {done.stderr for done in ends.values()} <= told
    assert [path.name for path in tmp_path.iterdir()] == ["eval.yaml"]


def lost_in_a_callback() -> None:
    class Falls:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    Falls()
    # Somewhere behind it the program goes on.
    time.sleep(20)


def cut_off_where_it_cleaned_up() -> None:
    try:
        raise KeyboardInterrupt
    finally:
        None.flags  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("happens", [lost_in_a_callback, cut_off_where_it_cleaned_up], ids=lambda it: it.__name__)
def test_what_becomes_of_an_interrupt_in_code_of_others_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], happens: Callable[[], None]
) -> None:
    def import_module(_name: str) -> None:
        happens()
        raise AssertionError("the interrupt was lost")

    monkeypatch.setattr(importlib, "import_module", import_module)
    # Not ignored, as it is in what a shell starts in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        assert main(["eval", "status"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "gym eval status: interrupted\n")


def test_a_bug_is_no_interrupt_and_has_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(_name: str) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr(importlib, "import_module", import_module)

    with pytest.raises(AttributeError, match="a bug"):
        main(["eval", "status"])


def test_other_errors_in_callbacks_are_told_as_python_tells_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Falls:
        def __del__(self) -> None:
            raise ValueError("in a callback")

    def import_module(_name: str) -> None:
        Falls()
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", import_module)

    assert main(["eval", "status"]) == 130
    assert "ValueError: in a callback" in capsys.readouterr().err


def test_an_interrupt_of_code_made_from_text_ends_with_130_too() -> None:
    """Python kills itself by the signal for that, which ssh tells as 255."""
    program = """
import importlib, sys
from orchestrate.cli.main import main
importlib.import_module = lambda name: exec("raise KeyboardInterrupt")
sys.exit(main(["eval", "status"]))
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (130, "gym eval status: interrupted\n")
