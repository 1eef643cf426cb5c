"""The table of expected outcomes, numbers 14 to 27: what is repaired, what is refused, whose work is reused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from collector import rows as codec
from collector.errors import CorruptArtifactError, GymEvalError, IdentityError, RefusedError
from collector.outcomes import Failure
from merge.command import merge_paths
from tests.outcomes.bench import Bench, row

Lines = Callable[[list[bytes]], list[bytes]]
UNSAFE = {"allow_unsafe_resume": True}


@pytest.fixture
def finished(bench: Bench) -> Bench:
    """Task 0 failed once and was measured, task 1 is measured, task 2 is out of attempts."""
    bench.tasks({"acts": [{}]}, {"say": "äé"}, {"acts": [{}, {}, {}]})
    bench.fill()
    return bench


@pytest.mark.parametrize("kind", ["success", "failure"])
def test_n14_a_row_whose_event_was_lost_in_a_crash_is_recovered(bench: Bench, kind: str) -> None:
    """The row reached the disk, its event did not: the next session writes the event and asks nothing again."""
    bench.tasks({}, {"acts": [{}] if kind == "failure" else []})
    bench.base["retry"] = {"max_attempts": 1}
    bench.fill()
    expected, calls = bench.states(), bench.asked()
    bench.edit(bench.artifacts.journal, lambda lines: lines[: last_of(lines, kind)])

    bench.fill()

    assert [(event["event"], event["rollout_id"]) for event in bench.events() if event.get("recovered")] == [(kind, "1-0")]
    assert (bench.states(), bench.asked()) == (expected, calls)


def last_of(lines: list[bytes], kind: str) -> int:
    return max(n for n, line in enumerate(lines) if f'"event":"{kind}"'.encode() in line)


def other_answer(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[0].replace(b'"reward":1', b'"reward":0')]


def foreign_row(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[0].replace(b'"_ng_run_id":"0', b'"_ng_run_id":"f')]


def undispatched(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"attempt_index":0,"offset"', b'"attempt_index":7,"offset"') for line in lines]


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        pytest.param("journal", undispatched, "attempt 7 of .* was never dispatched", id="outcome-without-dispatch"),
        pytest.param("rollouts", other_answer, r"rollouts\.jsonl:3: .* has two outcomes", id="two-results-of-one-attempt"),
        pytest.param("rollouts", foreign_row, r"rollouts\.jsonl:3: a row of run f000", id="result-of-another-run"),
        pytest.param("failures", foreign_row, r"rollouts_failures\.jsonl:5: .*", id="failure-of-another-run"),
    ],
)
def test_n15_what_no_crash_explains_is_refused_even_when_unsafe_resume_is_allowed(
    finished: Bench, file: str, damage: Lines, message: str
) -> None:
    """Contradictory or foreign records: an error with file and line, no byte changed, and no switch that lets it pass."""
    finished.edit(getattr(finished.artifacts, file), damage)
    before, calls = finished.contents(), finished.asked()

    with pytest.raises(CorruptArtifactError, match=message):
        finished.fill(**UNSAFE)

    assert (finished.contents(), finished.asked()) == (before, calls)


@pytest.mark.parametrize(
    ("tail", "asked_again"),
    [
        pytest.param(lambda line: line[:-1], 0, id="whole-but-for-its-newline"),
        pytest.param(lambda line: line[:-9], 1, id="torn"),
        pytest.param(lambda line: line[: line.index("ä".encode()) + 1], 1, id="torn-within-a-character"),
    ],
)
@pytest.mark.parametrize("has_event", [pytest.param(True, id="recorded"), pytest.param(False, id="not-recorded")])
def test_n16_an_unfinished_last_row_is_ended_when_whole_and_redone_when_torn(
    bench: Bench, tail: Callable[[bytes], bytes], asked_again: int, has_event: bool
) -> None:
    """The last row of the main file lacks its newline, or more: at most this one rollout is asked again, and no line is fused."""
    bench.tasks({}, {"say": "äé"})
    bench.fill()
    bench.edit(bench.artifacts.rollouts, lambda lines: [lines[0], tail(lines[1])])
    if not has_event:
        bench.edit(bench.artifacts.journal, lambda lines: lines[: last_of(lines, "success")])

    bench.fill()

    assert bench.asked() == {"0-0": 1, "1-0": 1 + asked_again}
    assert [found["_ng_task_index"] for found in bench.rows()] == [0, 1]
    assert bench.artifacts.rollouts.read_bytes().endswith(b"\n")


def test_n16_nothing_is_repaired_while_anything_else_is_broken(finished: Bench) -> None:
    """A torn last row beside a failure of another run: the whole history is validated first, so the torn row stays torn."""
    finished.edit(finished.artifacts.rollouts, lambda lines: [*lines[:-1], lines[-1][:-5]])
    finished.edit(finished.artifacts.failures, foreign_row)
    before = finished.contents()

    with pytest.raises(CorruptArtifactError):
        finished.fill()

    assert finished.contents() == before


def garbage(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"{broken\n", *lines[1:]]


@pytest.mark.parametrize(
    ("file", "place"),
    [
        pytest.param("journal", r"rollouts_attempts\.jsonl:2: ", id="journal"),
        pytest.param("rollouts", r"rollouts\.jsonl:3: ", id="results"),
        pytest.param("failures", r"rollouts_failures\.jsonl:5: ", id="failures"),
        pytest.param("inventory", r"rollouts_materialized_inputs\.jsonl:2: ", id="inventory"),
    ],
)
def test_n17_a_malformed_line_in_the_middle_is_an_error_and_changes_nothing(finished: Bench, file: str, place: str) -> None:
    """A broken line between good ones: an error that names file and line, and every byte stays.

    Rows are accounted for by offset, so that a resume need not read them: a line pushed into them is noticed where the
    accounted bytes end, at the last row.
    """
    finished.edit(getattr(finished.artifacts, file), garbage)
    before = finished.contents()

    with pytest.raises(CorruptArtifactError, match=place):
        finished.fill()

    assert finished.contents() == before


def test_n17_a_recorded_row_that_was_overwritten_never_reaches_a_result(finished: Bench, tmp_path: Path) -> None:
    """The same for damage that keeps every length: a resume does not read recorded rows, whoever uses them checks each."""
    finished.edit(finished.artifacts.rollouts, lambda lines: [lines[0].replace(b'"reward":1', b'"reward":0'), *lines[1:]])

    with pytest.raises(CorruptArtifactError, match=r"rollouts\.jsonl"):
        merge_paths([finished.artifacts.rollouts], tmp_path / "merged.jsonl", allow_partial=True)

    assert not (tmp_path / "merged.jsonl").exists()


def test_n18_another_model_is_refused_before_anything_is_sent_or_written(bench: Bench) -> None:
    """Saved work of model a, and the command now names b: exit code 4, the difference in one line, no byte changed."""
    bench.tasks({"acts": ["die"]})
    bench.run(policy_model_name="a")
    before, calls = bench.contents(), bench.asked()

    refused = bench.run(policy_model_name="b")

    assert refused.returncode == 4
    assert 'policy_model_name: saved "a", now "b"' in refused.stderr
    after = {name: data for name, data in bench.contents().items() if name in before}
    assert (after, bench.asked()) == (before, calls)


def test_n19_the_same_model_at_another_address_with_another_key_is_the_same_experiment(bench: Bench) -> None:
    """Host, port and key say where the model is, not which: the resume is accepted."""
    bench.tasks({"acts": [{}]})
    bench.fill(policy_base_url="http://one:8000/v1", policy_api_key="sk-one", retry={"max_attempts": 1})

    coverage = bench.fill(policy_base_url="http://two:9000/v1", policy_api_key="sk-two").coverage

    assert (coverage.measured, coverage.identity_verified) == (1, True)


def test_n20_a_task_parameter_counts_whatever_its_name_and_a_toggle_of_the_run_does_not_exist(bench: Bench) -> None:
    """``RERUN_INCOMPLETE`` inside the sampling parameters is part of the experiment, so a change is refused.

    At the root of a configuration NeMo Gym has a toggle of that name. Runs here always resume: the key is unknown, and refused
    as any unknown key. The switches that do exist at the root and change when work is done are accepted.
    """
    bench.tasks({})
    bench.fill(responses_create_params={"metadata": {"RERUN_INCOMPLETE": "true"}})

    with pytest.raises(IdentityError, match="RERUN_INCOMPLETE"):
        bench.fill(responses_create_params={"metadata": {"RERUN_INCOMPLETE": "false"}})
    with pytest.raises(ValidationError, match="RERUN_INCOMPLETE"):
        bench.settings(RERUN_INCOMPLETE=True)
    same = {"responses_create_params": {"metadata": {"RERUN_INCOMPLETE": "true"}}, "dispatch_longest_first": True}
    assert bench.fill(**same).coverage.measured == 1
    assert bench.asked() == {"0-0": 1}


def test_n21_reporting_never_enters_the_identity_of_saved_work(finished: Bench) -> None:
    """How missing rollouts are reported is asked when figures are made, not when work is saved: no such key is in the manifest."""
    saved = orjson.loads(finished.artifacts.manifest.read_bytes())["config"]

    assert not [key for key in saved if "count" in key or "zero" in key or key in {"retry", "durability", "timeouts"}]


LEGACY_RESULT = row(0, reward=0.5, response={}, mask_sample=False)


def test_n23_files_without_a_manifest_are_taken_over_only_when_asked_and_stay_marked(bench: Bench) -> None:
    """NeMo Gym's files: refused; with ``allow_unsafe_resume`` reused, and every report says unverified from then on."""
    bench.tasks({}, {})
    bench.make_legacy([LEGACY_RESULT], [])
    before = bench.contents()

    with pytest.raises(RefusedError, match="allow_unsafe_resume"):
        bench.fill()
    untouched = bench.contents() == before
    accepted = bench.fill(**UNSAFE).coverage

    assert untouched
    assert (bench.asked(), accepted.mean, accepted.identity_verified) == ({"1-0": 1}, 0.75, False)
    assert bench.fill().coverage.identity_verified is False


def saved_failure(**changes: Any) -> dict[str, Any]:
    record = {
        "schema_version": 1,
        "episode_id": {"rollout_id": "1-0", "attempt": 0},
        "run_id": "0" * 32,
        "source": "collector",
        "delivery": "delivered",
        "failure": {"failure_reason": "no", "terminal": False},
        "http_status": None,
        "exception_type": None,
    }
    return row(
        1, _ng_run_id="0" * 32, _ng_failure_class="agent_run_error", _ng_failure_terminal=False,
        _ng_failure_record={**record, **changes},
    )  # fmt: skip


BAD_RECORDS = [
    pytest.param({"schema_version": 2}, "failure record format 2", id="n24-newer-format"),
    pytest.param({"surprise": 1}, "surprise", id="n24-unknown-key"),
    pytest.param({"failure": {"failure_reason": "no", "terminal": True}}, "disagree on terminal", id="n25-terminal-differs"),
    pytest.param({"failure": {"message": "no", "terminal": False}}, "message|failure_reason", id="n27-message"),
    pytest.param({"source": "environment", "delivery": "not_sent"}, "was delivered", id="source-and-delivery"),
]


@pytest.mark.parametrize(("change", "message"), BAD_RECORDS)
def test_a_failure_record_that_breaks_its_rules_is_refused_on_import(
    bench: Bench, change: dict[str, Any], message: str
) -> None:
    """Another format number, an unknown key, a record that contradicts its row, the former name ``message``: refused."""
    bench.tasks({}, {})
    bench.make_legacy([LEGACY_RESULT], [saved_failure(**change)])
    before = bench.contents()

    with pytest.raises(CorruptArtifactError, match=message) as caught:
        bench.fill(**UNSAFE)

    assert "rollouts_failures.jsonl:1" in str(caught.value)
    assert (bench.contents(), bench.asked()) == (before, {})


@pytest.mark.parametrize("file", ["rollouts", "failures"])
def test_n24_whole_json_without_its_newline_has_to_be_a_row_too(bench: Bench, file: str) -> None:
    """The last line of an imported file is complete JSON and breaks the rules: it is no torn line, so it is refused."""
    bench.tasks({}, {})
    bench.make_legacy([row(0, reward="high", response={})], [saved_failure(schema_version=2)])
    other = bench.artifacts.failures if file == "rollouts" else bench.artifacts.rollouts
    other.write_bytes(b"")
    path = getattr(bench.artifacts, file)
    path.write_bytes(path.read_bytes()[:-1])
    before = bench.contents()

    with pytest.raises(CorruptArtifactError, match=rf"{path.name}:1: not a "):
        bench.fill(**UNSAFE)

    assert bench.contents() == before


def test_a_failure_record_that_keeps_its_rules_is_imported(bench: Bench) -> None:
    """The counterpart: the same row without the fault is one used attempt."""
    bench.tasks({}, {})
    bench.make_legacy([LEGACY_RESULT], [saved_failure()])

    coverage = bench.fill(**UNSAFE).coverage

    assert (coverage.measured, coverage.attempts) == (2, 3)


@pytest.mark.parametrize(("change", "message"), BAD_RECORDS)
def test_a_failure_record_that_breaks_its_rules_is_refused_on_resume(
    bench: Bench, change: dict[str, Any], message: str
) -> None:
    """The same for a row that a killed session of our own left behind its journal."""
    bench.tasks({}, {"acts": ["die"]})
    bench.run()
    line = saved_failure(**change)
    line["_ng_failure_record"]["run_id"] = line["_ng_run_id"] = bench.run_id()
    bench.artifacts.failures.write_bytes(orjson.dumps({**line, "_ng_session": 0}) + b"\n")
    before, calls = bench.contents(), bench.asked()

    with pytest.raises(CorruptArtifactError, match=message):
        bench.fill(**UNSAFE)

    assert (bench.contents(), bench.asked()) == (before, calls)


@pytest.mark.parametrize("terminal", [True, False])
def test_n25_row_and_record_are_written_from_one_value(terminal: bool) -> None:
    """What is written says terminal twice, once for NeMo Gym's readers, and cannot say two things."""
    failure = Failure(failure_class="agent_run_error", reason="no", terminal=terminal)
    source = orjson.dumps(row(1)) + b"\n"

    line = codec.failure_line(source, row(1), failure, rollout_id="1-0", run_id="r", session=0, attempt=0)

    saved = orjson.loads(line)
    assert saved["_ng_failure_terminal"] is saved["_ng_failure_record"]["failure"]["terminal"] is terminal


def test_n26_a_failure_reported_by_the_environment_without_a_kind_stays_a_failure(bench: Bench) -> None:
    """No kind given: nothing is invented, the routing class is the generic one of its source, and no reward appears."""
    act = {"failure_class": "environment_server_failed", "source": "environment", "reason": "sandbox vanished"}
    bench.tasks({"acts": [act] * 3})

    coverage = bench.fill().coverage

    first = bench.failures()[0]
    assert (first["_ng_failure_class"], first["failure_kind"]) == ("environment_server_failed", None)
    assert "failure_kind" not in first["_ng_failure_record"]["failure"]
    assert (coverage.states["exhausted"], coverage.failures_by_kind, "reward" in first) == (
        1, {"environment_server_failed": 1}, False,
    )  # fmt: skip


def test_n27_reasons_are_saved_under_the_canonical_name(finished: Bench) -> None:
    """``failure_reason`` it is, in the record and in the row."""
    saved = finished.failures()[0]

    assert (saved["failure_reason"], saved["_ng_failure_record"]["failure"]["failure_reason"]) == ("scripted", "scripted")
    assert "message" not in saved["_ng_failure_record"]["failure"]


def test_errors_pickle_with_their_place(finished: Bench) -> None:
    """Whoever runs the collector in another process reads the same line."""
    finished.edit(finished.artifacts.journal, garbage)

    with pytest.raises(GymEvalError) as caught:
        finished.fill()

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
