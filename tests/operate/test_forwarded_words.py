"""The words of a command that goes on where its run is: RUN becomes the run's place there, and nothing else does."""

from __future__ import annotations

import pytest

from orchestrate.remote import forward
from orchestrate.remote.runs import RemoteRun


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["math"], ["/r/math-1"]),
        (["math", "--benchmark", "math"], ["/r/math-1", "--benchmark", "math"]),
        (["--benchmark", "math", "math"], ["--benchmark", "math", "/r/math-1"]),
        (["--json", "math"], ["--json", "/r/math-1"]),
    ],
)
def test_a_benchmark_that_is_called_as_the_run_begins_stays(
    monkeypatch: pytest.MonkeyPatch, words: list[str], sent: list[str]
) -> None:
    """``cancel --benchmark math math`` named a directory as the benchmark."""
    run = RemoteRun(at="", name="math-1", run_dir="/r/math-1", hostname="login")
    told: list[list[str]] = []

    def found(_text: str) -> RemoteRun:
        return run

    def run_there(_node: object, command: list[str]) -> int:
        told.append(command)
        return 0

    monkeypatch.setattr(forward, "find_remote", found)
    monkeypatch.setattr(forward, "run_there", run_there)

    assert forward.forwarded("cancel", "math", words) == 0

    assert told == [["cancel", *sent]]
