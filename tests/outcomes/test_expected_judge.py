"""The table of expected outcomes, numbers 32 and 33: deliverables that are judged again, and results that become failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.errors import CorruptArtifactError
from tests.outcomes.bench import Bench, row

RETRY = {"retry_invalid_judge_responses": True}
INVALID = {"judgement": {"invalid_judge_response": True}, "grade": 0}


@pytest.mark.parametrize(
    ("second", "is_reused"),
    [pytest.param("die", True, id="interrupted"), pytest.param({}, False, id="recorded-failure-without-reuse")],
)
def test_n32_a_deliverable_survives_interruptions_and_no_newer_outcome(bench: Bench, second: Any, is_reused: bool) -> None:
    """Attempt 0 allows reuse; attempt 1 is killed, or fails without a word of it: only the killed one leaves it allowed."""
    bench.tasks({"acts": [{"reuse_deliverable": True}, second]})
    bench.run()

    bench.fill()

    (result,) = bench.rows()
    assert (result["_ng_attempt_index"], result["response"]["reused"]) == (2, is_reused)
    assert "reuse_cached_deliverable" not in result


def test_n32_an_allowance_is_not_handed_on_by_the_attempt_that_used_it(bench: Bench) -> None:
    """Attempt 1 is allowed to reuse and fails for another reason: attempt 2 starts from nothing."""
    bench.tasks({"acts": [{"reuse_deliverable": True}, {}]})

    bench.fill()

    assert [failure.get("reuse_cached_deliverable", False) for failure in bench.failures()] == [True, False]
    assert bench.rows()[0]["response"]["reused"] is False


@pytest.fixture
def half_done(bench: Bench) -> Bench:
    """A migration that died after its failure row was written and before its event."""
    bench.tasks(INVALID, {})
    bench.fill()
    bench.fill(retry=RETRY, dispatch_budget_s=0)
    bench.edit(bench.artifacts.journal, lambda lines: lines[: [b'"migrated"' in line for line in lines].index(True)])
    return bench


@pytest.mark.parametrize("retry", [pytest.param(RETRY, id="setting-on"), pytest.param({}, id="setting-off-since")])
def test_n33_a_migration_that_died_between_its_two_records_is_completed(half_done: Bench, retry: dict[str, Any]) -> None:
    """The failure row is to the byte what the result becomes: the attempt failed once, and is dispatched again once."""
    coverage = half_done.fill(retry=retry).coverage

    assert (half_done.asked(), len(half_done.failures())) == ({"0-0": 2, "1-0": 1}, 1)
    assert (coverage.measured, coverage.attempts) == (2, 3)
    assert [event["recovered"] for event in half_done.events("migrated")] == [True]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b'"id":"answer-0"', b'"id":"answer-7"', id="another-answer"),
        pytest.param(b'"failure_kind":"judge_unparseable"', b'"failure_kind":"judge_failed"', id="another-kind"),
        pytest.param(b'"_ng_session":0', b'"_ng_session":0,"more":1', id="a-key-more"),
        pytest.param(b'"_ng_run_id":"', b'"_ng_run_id":"f', id="a-foreign-run"),
    ],
)
def test_n33_a_failure_row_of_another_result_is_refused(half_done: Bench, old: bytes, new: bytes) -> None:
    """One difference is enough: no crash explains it, and nothing is touched."""
    half_done.edit(half_done.artifacts.failures, lambda lines: [line.replace(old, new) for line in lines])
    before = half_done.contents()

    with pytest.raises(CorruptArtifactError, match=r"rollouts_failures\.jsonl:1: "):
        half_done.fill(retry=RETRY)

    assert half_done.contents() == before


def legacy_halves(bench: Bench, directory: Path, *, reward: float) -> None:
    """What a migration of NeMo Gym leaves when it dies after its first step; ``reward`` is the copy's, the result has 0."""
    (directory / "kept").mkdir()
    (directory / "kept" / "report.txt").write_text("done")
    result = row(0, reward=0.0, response={}, invalid_judge_response=True, deliverables_dir=str(directory / "kept"))
    copy = {**result, "reward": reward, "_ng_failure_class": "judge_invalid", "reuse_cached_deliverable": True}
    bench.tasks({}, {})
    bench.make_legacy([result], [{**copy, "_ng_migrated_invalid_judge_response": True}])


def test_n33_two_records_of_an_imported_run_that_match_are_one_failed_attempt(bench: Bench, tmp_path: Path) -> None:
    """The result does not count, its failure does, and the next attempt judges the deliverable that is still there."""
    legacy_halves(bench, tmp_path, reward=0.0)

    coverage = bench.fill(allow_unsafe_resume=True).coverage

    assert bench.asked() == {"0-0": 1, "1-0": 1}
    assert (coverage.mean, coverage.attempts) == (1.0, 3)
    retried = next(saved for saved in bench.rows() if saved.get("_ng_attempt_index") == 1)
    assert (retried["_ng_task_index"], retried["response"]["reused"]) == (0, True)


def test_n33_two_records_of_an_imported_run_that_differ_are_refused(bench: Bench, tmp_path: Path) -> None:
    """The copy has another reward than the result: nothing tells which is true."""
    legacy_halves(bench, tmp_path, reward=1.0)
    before = bench.contents()

    with pytest.raises(CorruptArtifactError, match=r"rollouts\.jsonl:1: its attempt has a failure row as well"):
        bench.fill(allow_unsafe_resume=True)

    assert bench.contents() == before


def _deliverable(tmp_path: Path, what: str) -> str:
    directory = tmp_path / "delivered"
    if what != "missing":
        directory.mkdir()
    if what == "file":
        (directory / "report.txt").write_text("done")
    return str(directory)


@pytest.mark.parametrize(("what", "may_reuse"), [("file", True), ("empty", False), ("missing", False)])
def test_a_flagged_result_becomes_a_failure_that_keeps_its_answer_and_has_no_reward(
    bench: Bench, tmp_path: Path, what: str, may_reuse: bool
) -> None:
    """With the setting on, at the next session: class ``judge_invalid``, not terminal, and reuse where there is something."""
    where = {"deliverables_dir": _deliverable(tmp_path, what)}
    bench.tasks({"grade": 0, "judgement": {"invalid_judge_response": True, **where}}, {})
    bench.fill()
    kept = bench.artifacts.rollouts.read_bytes()

    before = bench.fill().coverage
    bench.fill(retry=RETRY, dispatch_budget_s=0)

    (failure,) = bench.failures()
    assert (before.mean, bench.states()) == (0.5, {"measured": 1, "failed": 1})
    assert bench.artifacts.rollouts.read_bytes() == kept
    assert (failure["_ng_failure_class"], failure["_ng_failure_terminal"]) == ("judge_invalid", False)
    assert failure["_ng_migrated_invalid_judge_response"] is True
    assert (failure.get("reuse_cached_deliverable", False), "reward" in failure) == (may_reuse, False)
    assert failure["response"]["id"] == "answer-0"


def test_a_migration_is_done_once(bench: Bench) -> None:
    """Two more sessions with the setting on find nothing that is flagged and counts."""
    bench.tasks(INVALID)
    bench.fill()
    bench.fill(retry=RETRY, dispatch_budget_s=0)
    before = bench.artifacts.failures.read_bytes()

    bench.fill(retry=RETRY, dispatch_budget_s=0)

    assert bench.artifacts.failures.read_bytes() == before
    assert len(bench.events("migrated")) == 1


def test_flagged_results_use_up_their_attempts_like_other_failures(bench: Bench) -> None:
    """A judge that never answers well ends in ``exhausted`` after three attempts, not in a loop."""
    bench.tasks(INVALID)

    for _ in range(5):
        bench.fill(retry=RETRY)

    assert bench.asked() == {"0-0": 3}
    assert bench.states() == {"exhausted": 1}
