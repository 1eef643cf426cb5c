"""Rows that other people saved: every example file of NeMo Gym is checked, whatever it holds."""

from __future__ import annotations

import json
from pathlib import Path

from collector.artifacts import RunArtifacts
from merge.health.checks import Check
from merge.health.run import check_health
from tests.health.rows import verdicts
from tests.support.requirements import require
from tests.support.wheel import missing_wheel, unpack_rollouts


def test_every_example_file_is_checked_and_every_line_has_one_verdict(tmp_path: Path) -> None:
    require("files of other people", missing_wheel())
    paths = unpack_rollouts(tmp_path)

    reports = {path: check_health(RunArtifacts(path), workers=1) for path in paths}

    assert len(reports) > 100
    for path, report in reports.items():
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        assert len(verdicts(report)) == len(lines)
        assert report.summary["run"]["issues"][Check.EXECUTION_ERROR] == 0
        unreadable = sum(not _is_object(line) for line in lines)
        assert report.summary["run"]["issues"][Check.UNREADABLE] == unreadable


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
