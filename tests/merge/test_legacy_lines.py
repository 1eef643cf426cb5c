"""Lines of NeMo Gym's files however they stand there: blank ones, odd text, in files of any size and number."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from merge.command import merge_paths
from orchestrate.cli.aggregate import main as aggregate
from tests.merge.legacy_files import asked, failure, lines, row, write


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Room for eighty files more than are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 80, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def source_digest(target: Path) -> str:
    return json.loads(RunArtifacts(target).aggregate.read_bytes())[0]["source_digest"]


@pytest.mark.parametrize("blank", [b"\n", b"  \r\n"], ids=["empty", "white-space"])
def test_blank_lines_are_passed_over_as_nemo_gym_does_and_count_as_lines(tmp_path: Path, blank: bytes) -> None:
    path = write(tmp_path / "r.jsonl", [], inventory=[asked(0), asked(1)], failures=[])
    for file in (path, RunArtifacts(path).inventory, RunArtifacts(path).failures):
        file.write_bytes(blank + file.read_bytes() + blank)
    path.write_bytes(lines([row(0)]) + blank + lines([row(1)]) + blank)

    report = merge_paths([path], tmp_path / "out.jsonl")

    assert report.coverage.measured == 2
    assert (tmp_path / "out.jsonl").read_bytes() == lines([row(0), row(1)])
    path.write_bytes(path.read_bytes() + lines([row(1, reward=0.0)]))
    with pytest.raises(Exception, match=r"r.jsonl:5: another row of rollout 1-0 than .*r.jsonl:3"):
        merge_paths([path], tmp_path / "other.jsonl")


def test_a_question_with_a_lone_surrogate_is_a_question(tmp_path: Path) -> None:
    odd = {**asked(0), "responses_create_params": {"input": "half of a pair: \ud83d"}}
    path = write(tmp_path / "r.jsonl", [row(0)], inventory=[odd])

    merge_paths([path], tmp_path / "out.jsonl")
    first = source_digest(tmp_path / "out.jsonl")
    write(path, [row(0)], inventory=[{**odd, "responses_create_params": {"input": "half of a pair: \ud83e"}}])
    merge_paths([path], tmp_path / "other.jsonl")

    assert len(first) == 64
    assert source_digest(tmp_path / "other.jsonl") != first


def test_a_line_of_an_inventory_that_is_none_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [row(0)], inventory=[asked(0), {"responses_create_params": {}}])

    with pytest.raises(CorruptArtifactError, match=r"r_materialized_inputs.jsonl:2: not an inventory row .*_ng_task_index"):
        merge_paths([path], tmp_path / "out.jsonl")


@pytest.mark.parametrize("size", [1, 97, 1000], ids=["each-byte", "parts-of-lines", "some-lines"])
def test_files_cut_anywhere_are_read_as_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """``size``: bytes of a file that are read at a time."""
    path = write(
        tmp_path / "r.jsonl",
        [row(3), row(0, text="x" * 400), row(2, reward=0.0), row(2, reward=0.0)],
        failures=[failure(1, _ng_failure_terminal=True)],
        inventory=[asked(task) for task in range(4)],
    )
    path.write_bytes(path.read_bytes() + b'{"torn')
    whole = merge_paths([path], tmp_path / "whole.jsonl")
    monkeypatch.setattr("merge.legacy.files._SHARE", size)

    parts = merge_paths([path], tmp_path / "parts.jsonl")

    assert parts.notes == whole.notes
    for name in ("{}.jsonl", "{}_coverage.json", "{}_aggregate_metrics.json"):
        assert (tmp_path / name.format("parts")).read_bytes() == (tmp_path / name.format("whole")).read_bytes()
    path.write_bytes(lines([row(0), row(1)]) + b"no row\n" + lines([row(2)]))
    with pytest.raises(CorruptArtifactError, match=r"r.jsonl:3: not a result row"):
        merge_paths([path], tmp_path / "other.jsonl")


@pytest.mark.usefixtures("few_descriptors")
def test_more_files_than_may_be_open_are_merged(tmp_path: Path) -> None:
    for task in range(120):
        write(tmp_path / f"r{task}.jsonl", [row(task), row(0)], inventory=[asked(task), asked(0)])

    report = merge_paths([str(tmp_path / "r*.jsonl")], tmp_path / "out.jsonl")

    assert report.coverage.measured == 120


def test_zeros_of_an_unknown_number_of_rollouts_are_told_with_a_question_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.jsonl", [row(0)])

    aggregate([str(path), "-o", str(tmp_path / "out.jsonl"), "count_missing_rollouts_as_zero=true"])

    assert "with 0s   1 (1/?): 1 measured" in capsys.readouterr().out
