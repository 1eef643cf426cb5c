"""The table of expected outcomes, numbers 23 to 27: imported runs, and the rules that failure records are held to."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from collector.errors import CorruptArtifactError, RefusedError
from collector.formats import row_lines
from collector.outcomes import Failure
from tests.outcomes.bench import Bench, row

UNSAFE = {"allow_unsafe_resume": True}


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

    line = row_lines.failure_line(source, row(1), failure, rollout_id="1-0", run_id="r", session=0, attempt=0)

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


def test_n27_reasons_are_saved_under_the_canonical_name(bench: Bench) -> None:
    """``failure_reason`` it is, in the record and in the row."""
    bench.tasks({"acts": [{}]})

    bench.fill()

    (saved,) = bench.failures()
    assert (saved["failure_reason"], saved["_ng_failure_record"]["failure"]["failure_reason"]) == ("scripted", "scripted")
    assert "message" not in saved["_ng_failure_record"]["failure"]
