"""From a dataset to the frozen list of rollouts, or one line that says what is wrong with which line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from collector.errors import DatasetError, GymEvalError, NoTasksError, NotFoundError
from collector.preparation.materialize import materialize
from collector.preparation.prepare import validate_rows
from tests.collector.shards import settings_for

ROW = b'{"responses_create_params":{"input":"?"},"n":%d}\n'


def rollouts(tmp_path: Path, data: bytes, **changes: object) -> list[tuple[int, int, dict]]:
    (tmp_path / "tasks.jsonl").write_bytes(data)
    rows = [json.loads(line) for line in materialize(settings_for(tmp_path, **changes))]
    return [(row["_ng_task_index"], row["_ng_rollout_index"], row) for row in rows]


def test_repeats_of_a_task_are_adjacent(tmp_path: Path) -> None:
    found = rollouts(tmp_path, ROW % 0 + ROW % 1, num_repeats=2)

    assert [(task, repeat) for task, repeat, _ in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_identical_lines_are_one_task_even_when_the_last_lacks_its_newline(tmp_path: Path) -> None:
    found = rollouts(tmp_path, ROW % 0 + ROW % 1 + (ROW % 0).rstrip(b"\n"))

    assert [(task, repeat) for task, repeat, _ in found] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("order", "limit", "said"),
    [
        pytest.param([0, 1, 2], None, [], id="none"),
        pytest.param(
            [0, 1, 0, 0, 1], None, ["3 rows repeat earlier rows and count as further repeats of their task: first at line 3"]
        ),
        pytest.param([0, 1, 1], None, ["1 row repeats an earlier row and counts as a further repeat of its task: at line 3"]),
        pytest.param([0, 1, 0], 2, [], id="behind-the-limit"),
    ],
)
def test_rows_that_repeat_earlier_ones_are_told(
    order: list[int], limit: int | None, said: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rollouts(tmp_path, b"".join(ROW % number for number in order), limit=limit)

    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path / 'tasks.jsonl'}: {text}" for text in said]


def test_carriage_returns_blank_lines_and_a_byte_order_mark_are_not_data(tmp_path: Path) -> None:
    found = rollouts(tmp_path, b"\xef\xbb\xbf" + (ROW % 0).replace(b"\n", b"\r\n") + b"\n  \n" + ROW % 1)

    assert [row["n"] for *_, row in found] == [0, 1]


def test_the_runs_sampling_wins_over_the_rows_one_level_deep(tmp_path: Path) -> None:
    row = b'{"responses_create_params":{"input":"?","temperature":1,"top_p":0.5}}\n'

    ((*_, found),) = rollouts(tmp_path, row, responses_create_params={"temperature": 0})

    assert found["responses_create_params"] == {"input": "?", "temperature": 0, "top_p": 0.5}


def test_a_prompt_template_is_filled_from_plain_fields(tmp_path: Path) -> None:
    ((*_, found),) = rollouts(tmp_path, b'{"q":"2+3"}\n', prompt_config={"system": "Be brief.", "user": "What is {q}?"})

    assert found["responses_create_params"]["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2+3?"},
    ]


@pytest.mark.parametrize(
    ("data", "changes", "error", "message"),
    [
        pytest.param(ROW % 0 + b"{nope\n", {}, DatasetError, r"tasks\.jsonl:2: not JSON", id="malformed"),
        pytest.param(b"[1]\n", {}, DatasetError, r"tasks\.jsonl:1: a list, not an object", id="not-an-object"),
        pytest.param(b'{"q":1}\n', {}, DatasetError, r"tasks\.jsonl:1: no responses_create_params\.input", id="no-input"),
        pytest.param(
            b'{"q":1}\n', {"prompt_config": {"user": "{x}"}}, DatasetError, r"needs 'x' and the row has q", id="no-field"
        ),
        pytest.param(ROW % 0, {"prompt_config": {"user": "{n}"}}, DatasetError, "Use one of them", id="input-and-prompt"),
        pytest.param(b'{"_ng_task_index":1}\n', {}, DatasetError, "reserved keys: _ng_task_index", id="reserved-key"),
        pytest.param(b'{"x":NaN}\n', {}, DatasetError, "not JSON", id="nan"),
        pytest.param(b"\n\n", {}, NoTasksError, "no rows", id="empty"),
    ],
)
def test_bad_rows_are_one_line_with_file_and_line_number(
    tmp_path: Path, data: bytes, changes: dict, error: type[GymEvalError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        rollouts(tmp_path, data, **changes)

    assert "\n" not in str(caught.value)


def test_a_missing_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"tasks\.jsonl: there is no such dataset"):
        materialize(settings_for(tmp_path))


def test_lines_that_stand_far_apart_are_one_task_with_all_its_repeats_side_by_side(tmp_path: Path) -> None:
    data = b"".join(ROW % (n % 300) for n in range(900)) + ROW % 1000

    found = rollouts(tmp_path, data, num_repeats=2)

    assert [(task, repeat) for task, repeat, _ in found] == [
        *((n, r) for n in range(300) for r in range(6)),
        (300, 0),
        (300, 1),
    ]
    assert [row["n"] for *_, row in found] == [*(n for n in range(300) for _ in range(6)), 1000, 1000]


def test_the_memory_of_preparing_a_run_does_not_grow_with_what_its_rows_weigh(tmp_path: Path) -> None:
    """5,000 rows of four kilobytes: twenty megabytes pass through one."""
    row = {"responses_create_params": {"input": "x" * 4000}, "grade": 1}
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(json.dumps({**row, "n": n}).encode() + b"\n" for n in range(5000)))
    settings = settings_for(tmp_path)
    validate_rows(settings, materialize(settings.model_copy(update={"limit": 1})))
    tracemalloc.start()

    made = materialize(settings)
    validate_rows(settings, made)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(made) == 5000
    assert peak < 4 << 20


def test_a_dataset_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_bytes(ROW % 0)
    made = materialize(settings_for(tmp_path))
    assert len(made) == 1
    (tmp_path / "tasks.jsonl").write_bytes(ROW % 1)

    with pytest.raises(DatasetError, match="it changed while it was read"):
        list(made)
