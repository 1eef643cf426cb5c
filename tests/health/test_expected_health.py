"""Expected outcomes of health checks on runs, by number: replacement, growth, and the automatic check of a journalled run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.errors import CorruptArtifactError
from collector.settings import RetrySettings
from exporters.tail import finish_benchmark
from merge.health.checks import Check
from merge.health.run import HealthChoice, check_health, note_when_new
from merge.health.slices import selections_of, stretches_of
from merge.inputs.shards import read_shard
from tests.health.rows import digested, issues, row, verdicts, write
from tests.merge.build import Plan, answered, failed, fill, fill_all, plan


def finish(made: Plan, health: HealthChoice | None) -> str | None:
    result = finish_benchmark(made.merged, made.shards, benchmark="bench", retry=RetrySettings(), exports={}, health=health)
    assert result.receipt is not None
    return result.health


def test_n42_rows_of_run_b_at_the_path_of_run_a_are_a_finding_and_never_reported(tmp_path: Path) -> None:
    run_a = write(tmp_path / "rollouts.jsonl", [row(0), row(1)])
    indexed = list(stretches_of(run_a.rollouts))
    run_b = write(tmp_path / "b.jsonl", [row(9), row(1)])
    run_b.rollouts.replace(run_a.rollouts)

    digests = digested(indexed)

    assert [digest.task for digest in digests] == [None, None]
    assert [finding["check"] for digest in digests for finding in digest.findings] == [Check.UNREADABLE] * 2


def test_n43_a_check_of_a_file_that_grows_by_append_is_valid(tmp_path: Path) -> None:
    artifacts = write(tmp_path / "rollouts.jsonl", [row(0), row(1)])
    indexed = list(stretches_of(artifacts.rollouts))
    with artifacts.rollouts.open("ab") as file:
        file.write(json.dumps(row(2)).encode() + b"\n")

    digests = digested(indexed)

    assert [digest.task for digest in digests] == [0, 1]
    assert not any(digest.findings for digest in digests)


def test_n44_the_automatic_check_of_a_journalled_run_is_one_line_and_touches_no_other_file(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=1, tasks=3)
    (shard,) = fill_all(made, lambda task, repeat: answered(text="" if task == 1 else "four"))
    before = {path: path.read_bytes() for path in shard.rollouts.parent.iterdir()}

    line = note_when_new(shard, HealthChoice(), since=shard.rollouts)

    assert (
        line
        == "health: 0 healthy, 1 unhealthy, 2 unobserved (agent_turn_hollow 1); unobserved: nothing found, and the rows lack what 6 checks look at "
        "(gym eval health-check names them, health_check_ignored_checks leaves them out)"
    )
    assert {path: path.read_bytes() for path in before} == before


def test_n44_a_check_that_cannot_be_made_is_one_line_and_no_error(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=1, tasks=3)
    (shard,) = fill_all(made, lambda task, repeat: answered())
    shard.journal.write_bytes(b"nonsense\n" + shard.journal.read_bytes())

    line = note_when_new(shard, HealthChoice(), since=shard.rollouts)

    assert line is not None
    assert line.startswith("health: not checked: ")
    assert "\n" not in line
    with pytest.raises(CorruptArtifactError):
        check_health(shard)


def test_only_the_selected_attempts_of_a_journalled_run_are_checked(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=1, tasks=4)
    outcomes = {0: answered(), 1: [failed(terminal=False), answered()], 2: failed(), 3: None}
    shard = fill(made, 0, lambda task, repeat: outcomes[task])

    report = check_health(shard)

    assert [verdict["_ng_task_index"] for verdict in verdicts(report)] == [0, 1]


def test_a_row_that_is_not_the_recorded_one_is_a_finding(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=1, tasks=3)
    (shard,) = fill_all(made, lambda task, repeat: answered())
    data = shard.rollouts.read_bytes()
    shard.rollouts.write_bytes(data.replace(b"four", b"five", 1))

    report = check_health(shard)

    assert issues(report) == {Check.UNREADABLE: 1}


def test_rows_of_a_run_that_took_the_place_of_a_journalled_one_are_never_reported(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=1, tasks=3)
    (shard,) = fill_all(made, lambda task, repeat: answered())
    slices = list(selections_of(read_shard(shard, RetrySettings())))
    copy = tmp_path / "copy"
    copy.write_bytes(shard.rollouts.read_bytes())
    copy.replace(shard.rollouts)

    digests = digested(slices)

    assert [digest.is_readable for digest in digests] == [False] * 3


def test_two_runs_in_one_directory_keep_their_own_reports(tmp_path: Path) -> None:
    first = check_health(write(tmp_path / "a.jsonl", [row(0)]))
    second = check_health(write(tmp_path / "b.jsonl", [row(5), row(6)]))

    assert {first.health.name, first.verdicts.name} == {"a_health.json", "a_verdicts.jsonl"}
    assert [verdict["_ng_task_index"] for verdict in verdicts(first)] == [0]
    assert [verdict["_ng_task_index"] for verdict in verdicts(second)] == [5, 6]


def test_a_merge_is_followed_by_one_check_of_the_projection(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=2, tasks=4)
    fill_all(made, lambda task, repeat: answered())

    first, second = finish(made, HealthChoice()), finish(made, HealthChoice())

    assert (
        first
        == "health: 0 healthy, 0 unhealthy, 4 unobserved; unobserved: nothing found, and the rows lack what 6 checks look at "
        "(gym eval health-check names them, health_check_ignored_checks leaves them out)"
    )
    assert second is None
    assert len(made.merged.verdicts.read_bytes().splitlines()) == 4


def test_a_crash_between_merge_and_check_is_made_good_by_the_next_finisher(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=2, tasks=4)
    fill_all(made, lambda task, repeat: answered())
    finish(made, None)
    left = made.merged.health.with_name(f".{made.merged.health.name}.{'0' * 16}.tmp")
    left.write_bytes(b"{")

    line = finish(made, HealthChoice())

    assert line is not None
    assert made.merged.health.is_file()
    assert not left.exists()


def test_a_check_that_is_switched_off_writes_nothing(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=2, tasks=4)
    fill_all(made, lambda task, repeat: answered())

    assert finish(made, None) is None
    assert not made.merged.health.exists()


def test_a_wrong_name_among_ignored_checks_does_not_fail_the_benchmark(tmp_path: Path) -> None:
    made = plan(tmp_path, shards=2, tasks=4)
    fill_all(made, lambda task, repeat: answered())

    line = finish(made, HealthChoice(("hollow",)))

    assert line is not None
    assert "no such health check: hollow" in line
