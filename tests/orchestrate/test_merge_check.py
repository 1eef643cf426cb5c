"""``gym eval merge --check`` says no more than it looked at: rows that were changed in a shard are found there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrate.cli.main import main
from tests.merge.build import Plan, answered, fill_all, plan


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "b", shards=2, tasks=6)
    fill_all(made, lambda *_: answered(0.0))
    assert main(["eval", "merge", str(made.directory), "-o", str(made.merged.rollouts)]) == 0
    return made


def test_what_was_not_changed_is_verified(made: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()

    assert main(["eval", "merge", "--check", str(made.merged.rollouts)]) == 0
    assert capsys.readouterr().out == "verified: 6 rows of 2 inputs, each row read there too.\n"


def test_a_row_of_a_shard_that_was_changed_in_place_is_found(made: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    rows = made.shards[1].rollouts
    before = rows.read_bytes()
    changed = before.replace(b'"reward":0.0', b'"reward":1.0')
    assert (len(changed), changed != before) == (len(before), True)
    rows.write_bytes(changed)
    capsys.readouterr()

    code = main(["eval", "merge", "--check", str(made.merged.rollouts)])
    as_json = main(["eval", "merge", "--check", str(made.merged.rollouts), "--json"])

    said = capsys.readouterr()
    assert (code, as_json) == (4, 4)
    assert json.loads(said.out)["state"] == "input_damaged"
    first, *_ = said.err.splitlines()
    assert str(rows) in first
    assert "is not the one recorded" in first
    assert "restore the input" in first
    assert rows.read_bytes() == changed


def test_rows_of_a_shard_that_were_lost_are_told(made: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    rows = made.shards[1].rollouts
    rows.write_bytes(b"")

    assert main(["eval", "merge", "--check", str(made.merged.rollouts)]) == 4
    assert "verified" not in capsys.readouterr().out
