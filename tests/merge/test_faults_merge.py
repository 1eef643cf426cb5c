"""Public faults of others, E1 to E11, G1 and G4, as far as a merge and its command can have them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.outcomes import Failure, Omitted
from collector.settings import RetrySettings
from orchestrate.cli.main import main
from orchestrate.single import publish_metrics
from tests.merge.build import Outcome, Plan, answered, failed, fill, fill_all, plan, prepare_only
from tests.merge.legacy_files import asked, failure, row, write
from tests.merge.recount import Recount

FILES = ["out.jsonl", "out_coverage.json", "out_aggregate_metrics.json", "out_merge.json"]


def aggregate(source: Path, *more: str, name: str = "out.jsonl") -> int:
    return main(["eval", "aggregate", str(source), "-o", str(source.parent / name), *more])


def entry_of(folder: Path, stem: str = "out") -> dict[str, Any]:
    return json.loads((folder / f"{stem}_aggregate_metrics.json").read_bytes())[0]


@pytest.mark.parametrize("calls", range(4), ids=[f"e2-{name}" for name in FILES])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EXDEV], ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failing_call_leaves_the_old_file_or_the_new_one_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: int, number: int, call: str
) -> None:
    """E2 and E11: the receipt is written last, so that a half-made generation is never taken for a whole one."""
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())
    assert aggregate(made.directory) == 0
    old = {name: (tmp_path / name).read_bytes() for name in FILES}
    inputs = {path: path.read_bytes() for path in made.directory.rglob("*") if path.is_file()}
    (tmp_path / "out.jsonl").write_bytes(b"edited\n")
    real: Callable[..., Any] = getattr(os, call)
    targets = iter(range(100))

    def failing(first: Any, *rest: Any) -> Any:
        # Of the files alone: a directory is synchronized after its file is in place.
        place = Path(f"/proc/self/fd/{first}")
        if call == "replace" or not place.is_dir():
            is_publication = call == "replace" or ".tmp" in str(place.readlink())
            if is_publication and next(targets) == calls:
                raise OSError(number, os.strerror(number))
        return real(first, *rest)

    monkeypatch.setattr(os, call, failing)
    code = aggregate(made.directory)
    monkeypatch.undo()

    assert (code, os.strerror(number) in capsys.readouterr().err) == (5, True)
    kept = {name: (tmp_path / name).read_bytes() for name in FILES}
    assert kept["out.jsonl"] in (b"edited\n", old["out.jsonl"])
    assert [kept[name] for name in FILES[1:]] == [old[name] for name in FILES[1:]]
    assert {path: path.read_bytes() for path in inputs} == inputs
    assert not list(tmp_path.glob(".*.tmp"))
    assert aggregate(made.directory) == 0
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == old


def test_e3_a_missing_shard_is_refused_or_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(tmp_path / "b", shards=8, tasks=16)
    fill_all(made, lambda *_: answered())
    pattern = str(made.directory / "shards" / "[0-6]-of-8" / "*.jsonl")

    refused = main(["eval", "aggregate", "-i", pattern, "-o", str(tmp_path / "out.jsonl")])
    assert (refused, "1 of 8 shards is missing: 7" in capsys.readouterr().err) == (4, True)
    assert not list(tmp_path.glob("out*"))
    allowed = main(["eval", "aggregate", "-i", pattern, "-o", str(tmp_path / "out.jsonl"), "--allow-partial"])

    printed = capsys.readouterr()
    assert allowed == 6
    assert "1 (14/16, bounds 0.875 to 1)" in printed.out
    assert "PARTIAL" in printed.out
    assert not (tmp_path / "out.jsonl").exists()
    assert (tmp_path / "out.partial.jsonl").exists()


def test_e5_the_run_the_aggregate_and_a_recount_find_one_number(tmp_path: Path) -> None:
    whole = plan(tmp_path / "b", shards=1, tasks=6, repeats=2)
    fates = [
        answered(0.1),
        answered(0.7),
        failed(),
        answered(1.0, masked=True),
        answered(None),
        [failed(terminal=False), answered(0.2)],
    ]
    fill_all(whole, lambda task, _: fates[task])

    publish_metrics(whole.shards[0], RetrySettings())
    aggregate(whole.directory)

    at_once = json.loads(whole.shards[0].aggregate.read_bytes())[0]
    later = entry_of(tmp_path)
    values = Recount([whole.shards[0].rollouts]).values("reward")
    assert at_once == later
    assert at_once["agent_metrics"]["mean/reward"] == json.loads((tmp_path / "out_coverage.json").read_bytes())["mean_reward"]
    assert later["agent_metrics"]["coverage/scored"] == len(values) == 6


def hundred(task: int, repeat: int) -> Outcome:
    del repeat
    return answered(1.0) if task < 80 else answered(0.0) if task < 90 else Failure(failure_class="x", reason="r", terminal=True)


def test_e6_failures_show_in_coverage_and_count_as_zero_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=100)
    fill_all(made, hundred)

    code = aggregate(made.directory)
    printed = capsys.readouterr().out
    counted = aggregate(made.directory, "+count_failure_classes_as_zero=[x]", name="counted.jsonl")

    assert (code, counted) == (6, 6)
    assert "score     0.8889 (90/100, bounds 0.8 to 0.9)" in printed
    assert "with 0s   0.8 (100/100): 90 measured, 10 failures counted as 0, 0 missing imputed as 0" in capsys.readouterr().out
    assert entry_of(tmp_path)["agent_metrics"]["mean/reward"] == 80 / 90
    assert entry_of(tmp_path, "counted")["agent_metrics"]["mean/reward"] == 0.8


@pytest.mark.parametrize("kind", [None, "session_lost", "never_heard_of", "server:odd_kind"])
def test_e7_what_failed_or_was_masked_is_no_score_whatever_its_kind(tmp_path: Path, kind: str | None) -> None:
    results = [
        row(0, reward=1.0),
        row(1, reward=0.0, mask_sample=True, failure_kind=kind),
        row(2, reward=1.0, mask_sample=True),
    ]
    failures = [failure(3, failure_kind=kind, reward=0.0, _ng_failure_terminal=True)]
    source = write(tmp_path / "r.jsonl", results, failures=failures, inventory=[asked(task) for task in range(4)])

    code = aggregate(source)

    metrics = entry_of(tmp_path)["agent_metrics"]
    assert (code, metrics["mean/reward"], metrics["coverage/masked_rollouts"]) == (6, 1.0, 2)
    assert json.loads((tmp_path / "out_coverage.json").read_bytes())["failures_by_kind"] == {kind or "agent_run_error": 1}


def no_rows(folder: Path) -> Path:
    return write(folder / "r.jsonl", [], inventory=[])


def all_failed(folder: Path) -> Path:
    made = plan(folder / "b", shards=1, tasks=3)
    fill_all(made, lambda *_: failed())
    return made.directory


def all_masked(folder: Path) -> Path:
    made = plan(folder / "b", shards=1, tasks=3)
    fill_all(made, lambda *_: answered(1.0, masked=True))
    return made.directory


def some_failed(folder: Path) -> Path:
    made = plan(folder / "b", shards=1, tasks=3)
    fill_all(made, lambda task, _: answered() if task else failed())
    return made.directory


def unfinished(folder: Path) -> Path:
    made = plan(folder / "b", shards=1, tasks=3)
    fill_all(made, lambda task, _: answered() if task else None)
    return made.directory


def everything(folder: Path) -> Path:
    made = plan(folder / "b", shards=1, tasks=3)
    fill_all(made, lambda *_: answered())
    return made.directory


@pytest.mark.parametrize(
    ("source", "code"),
    [(no_rows, 8), (all_failed, 7), (all_masked, 7), (some_failed, 6), (unfinished, 6), (everything, 0)],
    ids=lambda value: f"g1-{value.__name__}" if callable(value) else str(value),
)
def test_each_way_to_have_measured_nothing_has_an_exit_code_of_its_own(
    tmp_path: Path, source: Callable[[Path], Path], code: int
) -> None:
    assert aggregate(source(tmp_path)) == code


def each_fate(task: int, repeat: int) -> Outcome | list[Outcome]:
    del repeat
    judged = Failure(failure_class="judge_failed", kind="judge_failed", reason="x")
    fates: list[Outcome | list[Outcome]] = [
        answered(1.0), answered(0.0), answered(1.0, masked=True), judged, failed(), [failed(terminal=False)] * 3, None,
        answered(None), Omitted(reason="x"),
    ]  # fmt: skip
    return fates[task]


def test_g4_one_task_of_each_fate_has_one_state_under_one_name_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=18)
    fill(made, 0, each_fate)
    prepare_only(made, 1)

    aggregate(made.directory, "--allow-partial")

    printed = capsys.readouterr().out
    coverage = json.loads((tmp_path / "out.partial_coverage.json").read_bytes())
    states = {
        "measured": 2, "masked": 1, "unscored": 1, "omitted": 1, "failed": 2, "exhausted": 1, "unknown": 1, "never_dispatched": 9,
    }  # fmt: skip
    assert coverage["states"] == states
    assert f"rollouts  {', '.join(f'{name} {count}' for name, count in states.items())}" in printed
    assert [part["states"] for part in coverage["shards"]] == [
        {k: v for k, v in states.items() if v < 9},
        {"never_dispatched": 9},
    ]
    assert "0.5 (2/18, bounds 0.05556 to 0.9444)" in printed


def test_e1_every_other_run_beside_the_target_is_byte_for_byte_what_it_was(tmp_path: Path, made_other: Plan) -> None:
    other = made_other.shards[0]
    before = {path: path.read_bytes() for path in other.rollouts.parent.iterdir()}
    mine = plan(tmp_path / "mine", shards=1, tasks=2)
    fill_all(mine, lambda *_: answered())

    codes = {main(["eval", "aggregate", str(mine.directory), "-o", str(path), "--allow-partial"]) for path in before}

    assert codes == {4}
    assert {path: path.read_bytes() for path in other.rollouts.parent.iterdir()} == before


@pytest.fixture
def made_other(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "other", shards=1, tasks=2)
    fill_all(made, lambda *_: answered())
    return made
