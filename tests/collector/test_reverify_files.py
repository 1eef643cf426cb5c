"""Files of NeMo Gym 0.7.0, without manifest and journal, graded again: read as they are, labelled as what nothing vouches for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError, CorruptArtifactError, DatasetError, NoTasksError, RefusedError
from tests.collector.regrading import by_id, regrade
from tests.collector.shards import rows_of

FOUR = {"verifier": {"type": "regex", "pattern": "four"}}


def asked(task: int, repeat: int = 0, **fields: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "2+2?"}]}
    return {"responses_create_params": params, "_ng_task_index": task, "_ng_rollout_index": repeat, **fields}


def result(task: int, text: str = "four", **fields: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {**asked(task), "response": {"id": text, "output": [message]}, "reward": 0.0, "mask_sample": False, **fields}


def failure(task: int, kind: str, text: str | None = None, **fields: Any) -> dict[str, Any]:
    row = asked(task, _ng_failure_class=kind, **fields)
    return row if text is None else {**row, "response": result(task, text)["response"]}


def write(
    directory: Path,
    results: list[dict[str, Any]],
    failures: list[dict[str, Any]] | None = None,
    inventory: list[dict[str, Any]] | None = None,
) -> RunArtifacts:
    directory.mkdir(exist_ok=True)
    paths = RunArtifacts(directory / "rollouts.jsonl")
    for path, found in ((paths.rollouts, results), (paths.failures, failures), (paths.inventory, inventory)):
        if found is not None:
            path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in found))
    return paths


def coverage_of(output: Path) -> dict[str, Any]:
    return json.loads(RunArtifacts(output).coverage.read_bytes())


def test_results_are_graded_and_the_inventory_says_what_was_expected(tmp_path: Path) -> None:
    files = write(
        tmp_path / "old", [result(2), result(0, "five")], [failure(1, "agent_run_error")], [asked(n) for n in range(4)]
    )
    before = {path: path.read_bytes() for path in files.rollouts.parent.iterdir()}
    output = tmp_path / "new.jsonl"

    _, warned = regrade(files.rollouts, output, **FOUR)

    assert {name: row["reward"] for name, row in by_id(output).items()} == {"0-0": 0.0, "2-0": 1.0}
    coverage = coverage_of(output)
    assert (coverage["expected"], coverage["measured"], coverage["identity_verified"]) == (4, 2, False)
    assert [line.rpartition(": ")[2] for line in warned] == ["1-0", "3-0"]
    assert before == {path: path.read_bytes() for path in files.rollouts.parent.iterdir()}


def test_without_an_inventory_the_rows_say_what_was_asked(tmp_path: Path) -> None:
    observed: dict[str, Any] = {"ng_perf": {"x": 1}, "_ng_environment_server": "e", "failure_kind": None}
    files = write(tmp_path / "old", [result(0, expected_answer="4", **observed)])

    regrade(files.rollouts, tmp_path / "new.jsonl", **FOUR)

    (line,) = rows_of(RunArtifacts(tmp_path / "new.jsonl").inventory)
    assert line == asked(0, expected_answer="4", _ng_environment_server="e")


def test_an_inventory_elsewhere_can_be_named(tmp_path: Path) -> None:
    files = write(tmp_path / "old", [result(0)])
    elsewhere = write(tmp_path / "inputs", [], None, [asked(0), asked(1)]).inventory

    made, _ = regrade(files.rollouts, tmp_path / "new.jsonl", materialized_inputs_jsonl_fpath=elsewhere, **FOUR)

    assert made.coverage.expected == 2


def test_of_several_failed_judgements_the_newest_answer_is_judged_and_results_are_taken_over(tmp_path: Path) -> None:
    files = write(
        tmp_path / "old",
        [result(3, "kept", reward=0.25, judged_by="someone", mask_sample=False)],
        [failure(0, "judge_failed", "three"), failure(1, "judge_invalid", "four"), failure(0, "judge_failed", "four")],
        [asked(n) for n in range(5)],
    )

    regrade(files.rollouts, tmp_path / "new.jsonl", judge_failed_only=True, **FOUR)

    found = by_id(tmp_path / "new.jsonl")
    assert {name: row["reward"] for name, row in found.items()} == {"0-0": 1.0, "1-0": 1.0, "3-0": 0.25}
    assert found["3-0"]["judged_by"] == "someone"
    assert found["3-0"]["response"]["id"] == "kept"


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        pytest.param([("judge_failed", "four", {}), ("agent_run_error", None, {})], "agent_run_error", id="agent-since"),
        pytest.param([("judge_failed", "four", {}), ("judge_failed", None, {})], "left no answer", id="no-answer-since"),
        pytest.param([("judge_failed", "four", {"_ng_failure_terminal": True})], "terminal", id="terminal"),
        pytest.param([("judge_failed", "four", {})] * 3, "attempts are used up", id="used-up"),
        pytest.param([("permanent", "four", {})], "permanent, which left no answer", id="permanent"),
    ],
)
def test_the_latest_failure_decides_whether_an_answer_is_judged_again(
    tmp_path: Path, failures: list[tuple[str, str | None, dict[str, Any]]], words: str
) -> None:
    rows = [failure(0, kind, text, **fields) for kind, text, fields in failures]
    files = write(tmp_path / "old", [result(1)], rows, [asked(0), asked(1)])

    with pytest.raises(NoTasksError):
        regrade(files.rollouts, tmp_path / "new.jsonl", judge_failed_only=True, **FOUR)

    files = write(tmp_path / "old", [result(1)], [*rows, failure(2, "judge_failed", "four")], [asked(n) for n in range(3)])
    _, warned = regrade(files.rollouts, tmp_path / "new.jsonl", judge_failed_only=True, **FOUR)
    (line,) = warned
    assert words in line
    assert line.endswith(": 0-0")


@pytest.mark.parametrize("where", ["results", "failures", "inventory"])
def test_rows_of_multi_stage_runs_are_refused_by_line(tmp_path: Path, where: str) -> None:
    staged: dict[str, Any] = {"stage_index": 1}
    files = write(
        tmp_path / "old",
        [result(0, **(staged if where == "results" else {}))],
        [failure(1, "judge_failed", "four", **(staged if where == "failures" else {}))],
        [asked(0, **(staged if where == "inventory" else {})), asked(1)],
    )

    with pytest.raises(DatasetError, match=r"jsonl:1: the row is one stage of several \(stage_index\)"):
        regrade(files.rollouts, tmp_path / "new.jsonl", judge_failed_only=True, **FOUR)

    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize(
    ("results", "failures", "inventory", "words"),
    [
        pytest.param([result(0), result(0)], None, None, r"rollouts\.jsonl:2: rollout 0-0 has two results", id="two-results"),
        pytest.param([result(7)], None, [asked(0)], r"rollouts\.jsonl:1: rollout 7-0 is not in the inventory", id="foreign"),
        pytest.param(
            [], [failure(7, "x")], [asked(0)], r"failures\.jsonl:1: rollout 7-0 is not in the inv", id="foreign-failure"
        ),
        pytest.param([result(0)], None, [asked(0), asked(0)], r"inputs\.jsonl:2: rollout 0-0 occurs twice", id="twice-asked"),
        pytest.param([{"reward": 1}], None, None, r"rollouts\.jsonl:1: not a row of a rollout", id="no-identity"),
        pytest.param([result(0, reward="1")], None, None, r"rollouts\.jsonl:1: not a result row", id="no-number"),
        pytest.param([result(0)], [asked(1)], None, r"failures\.jsonl:1: not a failure row", id="no-class"),
    ],
)
def test_files_that_contradict_themselves_are_refused_by_line(
    tmp_path: Path, results: Any, failures: Any, inventory: Any, words: str
) -> None:
    files = write(tmp_path / "old", results, failures, inventory)

    with pytest.raises(CorruptArtifactError, match=words):
        regrade(files.rollouts, tmp_path / "new.jsonl", **FOUR)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_last_line_that_a_crash_cut_off_is_passed_over_and_a_whole_one_counts(tmp_path: Path, cut: int) -> None:
    files = write(tmp_path / "old", [result(0), result(1)])
    files.rollouts.write_bytes(files.rollouts.read_bytes()[:-cut])

    made, _ = regrade(files.rollouts, tmp_path / "new.jsonl", **FOUR)

    assert made.coverage.measured == (2 if cut == 1 else 1)


def test_a_broken_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    files = write(tmp_path / "old", [result(0), result(1)])
    files.rollouts.write_bytes(files.rollouts.read_bytes().replace(b'"reward":0.0', b'"reward":', 1))

    with pytest.raises(CorruptArtifactError, match=r"rollouts\.jsonl:1: "):
        regrade(files.rollouts, tmp_path / "new.jsonl", **FOUR)


def test_a_result_without_a_response_has_nothing_to_grade(tmp_path: Path) -> None:
    row = result(1)
    del row["response"]
    files = write(tmp_path / "old", [result(0), row])

    _, warned = regrade(files.rollouts, tmp_path / "new.jsonl", **FOUR)

    assert warned == ["not graded again, its row has no response: 1-0"]
    assert coverage_of(tmp_path / "new.jsonl")["failures_by_kind"] == {"not_reverified": 1}


def test_an_answer_cut_before_it_said_anything_keeps_the_verdict_that_is_taken_over(tmp_path: Path) -> None:
    """Graded again it would be masked; taken over it is what it was."""
    cut = {"id": "c", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    files = write(tmp_path / "old", [{**result(0), "response": cut}], [failure(1, "judge_failed", "four")])

    regrade(files.rollouts, tmp_path / "taken.jsonl", judge_failed_only=True, **FOUR)
    regrade(files.rollouts, tmp_path / "graded.jsonl", **FOUR)

    assert (by_id(tmp_path / "taken.jsonl")["0-0"]["reward"], coverage_of(tmp_path / "taken.jsonl")["truncated"]) == (0.0, 1)
    assert by_id(tmp_path / "graded.jsonl")["0-0"]["mask_sample"] is True


def test_a_companion_is_not_a_rollouts_file(tmp_path: Path) -> None:
    files = write(tmp_path / "old", [result(0)], [failure(1, "judge_failed", "four")])

    with pytest.raises(RefusedError, match="a companion of a run"):
        regrade(files.failures, tmp_path / "new.jsonl", judge_failed_only=True, **FOUR)


def test_a_run_with_a_manifest_has_its_own_inventory(tmp_path: Path) -> None:
    files = write(tmp_path / "old", [result(0)])
    regrade(files.rollouts, tmp_path / "new.jsonl", **FOUR)

    with pytest.raises(ConfigError, match="materialized_inputs_jsonl_fpath"):
        regrade(tmp_path / "new.jsonl", tmp_path / "b.jsonl", materialized_inputs_jsonl_fpath=files.rollouts, **FOUR)


def test_a_regraded_run_can_be_graded_again(tmp_path: Path) -> None:
    """The second manifest tells of both steps, and the run stays unverified."""
    files = write(tmp_path / "old", [result(0)])
    regrade(files.rollouts, tmp_path / "a.jsonl", **FOUR)

    regrade(tmp_path / "a.jsonl", tmp_path / "b.jsonl", verifier={"type": "regex", "pattern": "five"})

    manifest = json.loads(RunArtifacts(tmp_path / "b.jsonl").manifest.read_bytes())
    assert manifest["config"]["reverify"]["source"]["mode"] == "all"
    assert (manifest["legacy_import"], by_id(tmp_path / "b.jsonl")["0-0"]["reward"]) == (True, 0.0)
