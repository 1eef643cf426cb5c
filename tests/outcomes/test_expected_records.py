"""The table of expected outcomes, numbers 14 to 21: what is repaired, what is refused, whose work is reused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from pydantic import ValidationError

from collector.errors import CorruptArtifactError, GymEvalError, IdentityError
from merge.command import merge_paths
from tests.outcomes.bench import Bench

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


def test_errors_pickle_with_their_place(finished: Bench) -> None:
    """Whoever runs the collector in another process reads the same line."""
    finished.edit(finished.artifacts.journal, garbage)

    with pytest.raises(GymEvalError) as caught:
        finished.fill()

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
