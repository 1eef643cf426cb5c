"""Tables fit the terminal that they are printed on, and what is piped is never cut."""

from __future__ import annotations

import fcntl
import json
import os
import random
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from collector.outcomes import RolloutState
from collector.state.coverage import Coverage
from orchestrate.cli.status import as_text
from orchestrate.cli.tables import noted, path_line, table, wrapped
from orchestrate.remote.runs import RemoteRun, remember_remote
from orchestrate.scheduler import Knowledge
from orchestrate.status.report import BenchmarkReport, RunReport, ShardReport
from orchestrate.terminal import fitting
from tests.compare.sides import write_side
from tests.support.terminal import printed_on_terminal

HEADER = ["name", "count", "where"]
ROWS = [["a-long-name", "1234567", "/a/long/path"], ["b", "1", "/c"]]
PROGRAM = [sys.executable, "-m", "orchestrate.cli.main", "eval"]


def test_a_table_without_a_width_is_as_wide_as_its_cells() -> None:
    whole = table(HEADER, ROWS)

    assert whole.splitlines()[1] == "a-long-name  1234567  /a/long/path"
    assert table(HEADER, ROWS, width=34, spare=[("where", 5)]) == whole


@pytest.mark.parametrize(
    ("width", "first"),
    [
        pytest.param(33, "a-long-name  1234567  /a/long/p..", id="first-column-cut-a-little"),
        pytest.param(27, "a-long-name  1234567  /a/..", id="first-column-cut-to-its-least"),
        pytest.param(24, "a-long..  1234567  /a/..", id="then-the-next-one"),
        pytest.param(10, "a-l..  1234567  /a/..", id="no-column-beyond-its-least"),
    ],
)
def test_columns_are_cut_in_their_order_and_none_beyond_its_least(width: int, first: str) -> None:
    assert table(HEADER, ROWS, width=width, spare=[("where", 5), ("name", 5)]).splitlines()[1] == first


def test_a_column_of_numbers_gives_its_header_and_no_digit() -> None:
    shown = table(["n", "difference"], [["a", "-0.0667"], ["b", "+1"]], width=4, spare=[("difference", 0)])

    assert shown.splitlines() == ["n  diffe..", "a  -0.0667", "b  +1"]


def test_a_line_is_broken_between_words_and_a_path_is_cut_at_its_beginning() -> None:
    assert wrapped("one two three", 9) == "one two\n  three"
    assert wrapped("one two three", None) == "one two three"
    assert path_line("base ", "/a/b/c/d.json", " (1/1)", 20) == "base ../d.json (1/1)"
    assert path_line("base ", "/a/b/c/d.json", " (1/1)", None) == "base /a/b/c/d.json (1/1)"


def test_the_list_of_runs_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name = "a-run-with-a-name-of-many-words-1f2e3d4c"
    for number in range(2):
        run_dir = f"/shared/file/system/of/everybody/runs/{name}-{number}"
        remember_remote(RemoteRun(at="2026-05-01T10:00:00+00:00", name=f"{name}-{number}", run_dir=run_dir, hostname="login"))

    shown = printed_on_terminal([*PROGRAM, "list"], columns=80, env=os.environ)
    wide = printed_on_terminal([*PROGRAM, "list"], columns=200, env=os.environ)
    piped = subprocess.run([*PROGRAM, "list"], capture_output=True, text=True, check=True).stdout.splitlines()

    assert max(map(len, shown)) <= 80
    assert len(shown) == len(piped) == 3
    assert all("2026-05-01T10:00:00+00:00" in line for line in shown[1:])
    assert wide == piped
    assert f"login:/shared/file/system/of/everybody/runs/{name}-1" in piped[2]


def test_a_comparison_fits_eighty_columns_and_cuts_no_number(tmp_path: Path) -> None:
    chance = random.Random(5)
    sides = [
        write_side(tmp_path / "a-folder-of-a-shared-file-system" / name / "rollouts.jsonl",
                   {task: [chance.choice([0.0, 1e-5])] * 2 for task in range(60)}, expected=300)
        for name in ("base", "candidate")
    ]  # fmt: skip
    command = [*PROGRAM, "compare", *map(str, sides), "--output-dir", str(tmp_path)]

    shown = printed_on_terminal(command, columns=80, env=os.environ)
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    # The path of the report is there to be copied.
    assert shown[-1] == piped[-1] == f"  {tmp_path / 'compare_report.md'}"
    assert max(map(len, shown[:-1])) <= 80
    assert max(map(len, piped[:-1])) > 80
    short, long = (next(line for line in lines if line.startswith("mean/")) for lines in (shown, piped))
    assert long.endswith("insufficient evidence")
    assert any(line.startswith("mean/reward: insufficient evidence (") for line in shown)
    assert [cell for cell in long.split() if any(map(str.isdigit, cell))] == [
        cell for cell in short.split() if any(map(str.isdigit, cell))
    ]


def test_the_list_of_commands_and_a_health_check_fit_eighty_columns(tmp_path: Path) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]}
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1, "response": {"output": [said], "usage": usage}}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")

    commands = printed_on_terminal([*PROGRAM, "--help"], columns=80, env=os.environ)
    health = printed_on_terminal([*PROGRAM, "health-check", str(tmp_path / "r.jsonl")], columns=80, env=os.environ)

    assert any("health-check" in line for line in commands)
    assert max(map(len, commands)) <= 80
    assert any("lacks what some checks look at" in line for line in health)
    assert max(len(line) for line in health if str(tmp_path) not in line) <= 80


def test_a_note_stands_behind_its_row_or_below_it() -> None:
    rows = table(["shard", "job"], [["0", "41"], ["1", "42"]])

    assert noted(rows, ["", "it waits"], None).splitlines() == ["shard  job", "0      41", "1      42   it waits"]
    assert noted(rows, ["", "it waits"], 16).splitlines() == ["shard  job", "0      41", "1      42", "    it waits"]


def report() -> RunReport:
    """A benchmark with a long name, many kinds of failures, and a job that waits."""
    kinds = {f"a_kind_of_failure_{number}": 30 - number for number in range(4)}
    states = {RolloutState.MEASURED: 5, RolloutState.FAILED: 5}
    coverage = Coverage(benchmark="b", run_id="r", expected=10, states=states, failures_by_kind=kinds,
                        reward_sum=1 / 3, reward_min=0.0, reward_max=1 / 7)  # fmt: skip
    shard = ShardReport(
        index=0, expected=10, knowledge=Knowledge.KNOWN, job_state="PENDING", job_id="41", detail="PartitionConfig"
    )
    name = "a-benchmark-with-a-name-of-many-words-and-more"
    found = BenchmarkReport(name=name, coverage=coverage, mean_reward=coverage.mean, measured=5, expected=10, merged=None,
                            shards=[shard], submission_troubles=["shard 0 not submitted: " + "a word " * 20])  # fmt: skip
    return RunReport(name="r", run_dir="/r", asked_at="", scheduler_trouble="no answer " * 9, benchmarks=[found])


def test_a_status_fits_eighty_columns_and_says_all_that_a_wide_one_does() -> None:
    narrow = as_text(report(), each_shard=True, width=80).splitlines()
    wide = as_text(report(), each_shard=True)

    assert max(map(len, narrow)) <= 80
    assert max(map(len, wide.splitlines())) > 120
    shown = " ".join(" ".join(narrow).split())
    assert "failures a_kind_of_failure_0 30, a_kind_of_failure_1 29, a_kind_of_failure_2 28, a_kind_of_failure_3 27" in shown
    assert "a-benchmark-with-a-name-of-many-words-and-more: jobs 1 pending" in shown
    assert "0.06667 (5/10, bounds 0.03333 to 0.5333)" in narrow[2]
    assert "PartitionConfig: it asks for more than its partition has or allows" in shown
    assert "a-benchmark-with-a-name-of-many-words-and-more: shard 0 not submitted: a word" in shown
    # What fits stays a table.
    assert as_text(report(), each_shard=True, width=400) == wide


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        pytest.param(12, "math 10/100", id="it-fits"),
        pytest.param(11, "math 10/..", id="it-would-touch-the-edge"),
        pytest.param(6, "mat..", id="narrow"),
    ],
)
def test_a_line_that_is_rewritten_in_place_stays_one_line(columns: int, shown: str) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    with os.fdopen(theirs, "w") as stream:
        assert fitting("math 10/100", stream) == shown
    os.close(ours)
