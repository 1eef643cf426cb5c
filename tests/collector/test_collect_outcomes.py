"""What a collector session records, and what it leaves for the next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.formats.inventory import Inventory
from tests.collector.shards import asked, fill, rollout_ids, rows_of, settings_for, states, write_dataset


def test_every_rollout_ends_in_exactly_one_state(tmp_path: Path) -> None:
    write_dataset(
        tmp_path / "tasks.jsonl",
        [
            {"n": 0, "grade": 1},
            {"n": 1, "grade": 0},
            {"n": 2, "grade": None},
            {"n": 3, "grade": 1, "mask": True},
            {"n": 4, "grade": 1, "fail": 9},
            {"n": 5, "grade": 1, "fail": 1, "terminal": True},
        ],
    )

    result = fill(settings_for(tmp_path, num_repeats=2))

    assert {state.value: n for state, n in result.coverage.states.items() if n} == {
        "measured": 4,
        "unscored": 2,
        "masked": 2,
        "exhausted": 2,
        "failed": 2,
    }
    assert result.coverage.mean == 0.5
    assert (result.coverage.is_final, result.coverage.complete) == (True, False)


def test_a_failed_attempt_is_tried_again_up_to_the_cap_and_kept_apart_from_scores(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1, "fail": 2}, {"n": 1, "grade": 1, "fail": 3}])
    settings = settings_for(tmp_path)

    fill(settings)

    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    assert asked(tmp_path) == {"0-0": 3, "1-0": 3}
    assert [(row["_ng_task_index"], row["_ng_attempt_index"]) for row in rows_of(artifacts.rollouts)] == [(0, 2)]
    assert sorted(rollout_ids(artifacts.failures)) == ["0-0", "0-0", "1-0", "1-0", "1-0"]
    assert not any("reward" in row for row in rows_of(artifacts.failures))


def test_finished_rollouts_are_never_asked_again(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 0} for n in range(3)] + [{"n": 9, "grade": None}])
    settings = settings_for(tmp_path)
    fill(settings)
    before = RunArtifacts(settings.output_jsonl_fpath).rollouts.read_bytes()

    fill(settings)

    assert set(asked(tmp_path).values()) == {1}
    assert RunArtifacts(settings.output_jsonl_fpath).rollouts.read_bytes() == before


def test_a_raised_cap_gives_exhausted_rollouts_the_next_attempt_number(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1, "fail": 9}])
    fill(settings_for(tmp_path))

    fill(settings_for(tmp_path, retry={"max_attempts": 4}))

    failures = rows_of(RunArtifacts(tmp_path / "run" / "rollouts.jsonl").failures)
    assert [row.get("_ng_attempt_index", 0) for row in failures] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "grade",
    [pytest.param("0.5", id="text"), pytest.param(True, id="bool"), pytest.param([1], id="list")],
)
def test_what_is_no_number_never_becomes_a_score(tmp_path: Path, grade: object) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": grade}])
    settings = settings_for(tmp_path, retry={"max_attempts": 1})

    fill(settings)

    assert states(settings) == {"exhausted": 1}
    (failure,) = rows_of(RunArtifacts(settings.output_jsonl_fpath).failures)
    assert failure["failure_kind"] == "verifier_error"


def test_text_of_any_kind_survives_unchanged(tmp_path: Path) -> None:
    hostile = "a\u2028b\u2029c\u0085d\u000be\0f\ud800g \U0001f600 \r\n"
    rows = [{"n": 10**30, "id": "x", "grade": 1, "say": "fine"}]
    path = write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1, "say": "ok"}])
    path.write_bytes(
        path.read_bytes()
        + b"".join(json.dumps({"responses_create_params": {"input": hostile}, **r}).encode() + b"\n" for r in rows)
    )
    settings = settings_for(tmp_path)

    fill(settings)

    lines = RunArtifacts(settings.output_jsonl_fpath).rollouts.read_bytes().split(b"\n")[:-1]
    found = [json.loads(line) for line in lines]
    assert len(found) == 2
    (row,) = [row for row in found if row["_ng_task_index"] == 1]
    assert (row["n"], row["responses_create_params"]["input"]) == (10**30, hostile)


def test_an_answer_is_recorded_although_the_next_row_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are journalled together: what is wrong with the one must not cost the other."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(3)])
    settings = settings_for(tmp_path, num_samples_in_parallel=1)
    read = Inventory.line

    def line(self: Inventory, index: int) -> bytes:
        if index == 1:
            raise OSError(5, "Input/output error")
        return read(self, index)

    monkeypatch.setattr(Inventory, "line", line)
    with pytest.raises(OSError, match="Input/output"):
        fill(settings)
    monkeypatch.undo()

    assert states(settings) == {"measured": 1, "never_dispatched": 2}
    assert asked(tmp_path) == {"0-0": 1}
