"""Outputs that have no characters for a text, or are closed: everything is told all the same, and results stay pure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from collector.outcomes import Failure
from tests.merge.build import fill, plan
from tests.merge.legacy_files import asked, failure, row, write

ROOT = Path(__file__).parents[2]
KIND = "café \x1b[2J\u202e\nboom"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Rows of which one failed in words that are no ASCII, a torn one behind them, and a metric with such a name."""
    ended = failure(1, failure_kind=KIND, _ng_failure_terminal=True)
    rows = write(tmp_path / "in.jsonl", [row(0, größe=1)], failures=[ended], inventory=[asked(0), asked(1)])
    rows.write_bytes(rows.read_bytes() + b'{"_ng_task')
    return tmp_path


def gym(place: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", *words]
    whole = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.run(command, cwd=place, env=whole, capture_output=True, check=False)


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"PYTHONIOENCODING": "ascii"}, id="ascii"),
        pytest.param({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, id="c-locale"),
        pytest.param({"PYTHONIOENCODING": "utf-8:strict"}, id="utf-8"),
    ],
)
def test_a_text_that_an_output_has_no_characters_for_is_written_in_escapes(place: Path, env: dict[str, str]) -> None:
    """Every command that told a name was a traceback where the locale was C and no UTF-8 was taken for it."""
    merged = gym(place, "aggregate", "in.jsonl", "-o", "out.jsonl", env=env)
    compared = [gym(place, "compare", "out.jsonl", "out.jsonl", *more, env=env) for more in ((), ("--json",))]

    assert [merged.returncode, *(done.returncode for done in compared)] == [6, 0, 0]
    assert b"Traceback" not in merged.stderr
    assert b"<U+001B>[2J<U+202E><U+000A>boom 1\n" in merged.stdout
    assert all(line.isprintable() for line in merged.stderr.decode().splitlines())
    assert json.loads(compared[1].stdout)["candidates"][0]["metrics"][1]["metric"] == "mean/größe"


def test_what_a_merge_passed_over_is_told_beside_json_too(place: Path) -> None:
    done = gym(place, "aggregate", "in.jsonl", "-o", "out.jsonl", "--json")

    assert json.loads(done.stdout)["coverage"]["measured"] == 1
    assert b"in.jsonl:2: the last line is torn and was passed over." in done.stderr


def test_where_standard_error_is_closed_errors_are_not_among_the_results(place: Path) -> None:
    gym(place, "aggregate", "in.jsonl", "-o", "out.jsonl")
    (place / "out.jsonl").write_bytes(b"")
    command = f"{sys.executable} -m orchestrate.cli.main eval merge --json --check out.jsonl 2>&-"

    done = subprocess.run(
        command, shell=True, cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )

    assert done.returncode == 4
    assert json.loads(done.stdout)["state"] == "damaged"


def test_a_path_that_is_no_utf_8_and_was_found_by_a_pattern_is_refused_before_anything_is_written(place: Path) -> None:
    """Words of a command are UTF-8; what a pattern finds need not be, and ended in a traceback when all but the receipt stood."""
    odd = Path(os.fsdecode(os.fsencode(place) + b"/x\xff"))
    odd.mkdir()
    (place / "in.jsonl").rename(odd / "in.jsonl")
    before = sorted(place.iterdir())

    done = gym(place, "aggregate", "x*/in.jsonl", "-o", "out.jsonl")

    assert done.returncode == 4
    assert b"x<U+DCFF>/in.jsonl: the path is no UTF-8" in done.stderr
    assert sorted(place.iterdir()) == before


def test_where_the_current_directory_is_no_utf_8_its_files_are_read_all_the_same(place: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(place) + b"/x\xff"))
    odd.mkdir()
    rows = write(odd / "in.jsonl", [row(0)], inventory=[asked(0)])
    rows.write_bytes(rows.read_bytes() + b"torn\n")
    strict = {"PYTHONIOENCODING": "utf-8:strict"}

    done = [gym(odd, "health-check", "in.jsonl", env=strict)]
    rows.write_bytes(rows.read_bytes().removesuffix(b"torn\n"))
    done += [gym(odd, "aggregate", "in.jsonl", "-o", "out.jsonl"), gym(odd, "merge", "--check", "out.jsonl")]
    done += [gym(odd, "compare", ".", "."), gym(odd, "report", "out.jsonl")]

    assert [one.returncode for one in done] == [0] * 5
    assert json.loads((odd / "compare_report.json").read_bytes())["base"]["agent"] == "solver"


def test_the_story_of_a_rollout_moves_no_cursor(place: Path) -> None:
    made = plan(place / "run", shards=1, tasks=1)
    fill(made, 0, lambda _task, _repeat: Failure(failure_class="agent_request_failed", reason=KIND, terminal=True))

    done = gym(place, "why", str(made.shards[0].rollouts), "0-0")

    assert done.returncode == 0
    assert "café <U+001B>[2J<U+202E> boom" in done.stdout.decode()
    assert all(line.isprintable() for line in done.stdout.decode().splitlines())
