"""Faults of values, as people met them: text that splits lines, numbers that JSON or a float cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector import jsonl
from collector.errors import CorruptArtifactError, IdentityError
from merge.command import merge_paths
from tests.outcomes.bench import Bench
from tests.support.model_server import ModelServer

HOSTILE = "a\u2028b\u2029c\u0085d\u000be\u001cf\r\ng\u0000h\ufeff"


def test_d4_separators_that_are_text_pass_every_stage_unchanged(
    bench: Bench, model_server: ModelServer, tmp_path: Path
) -> None:
    """Line and paragraph separators in prompt, answer and metadata: as many rows and the same bytes after resume and merge."""
    fields = {n: {"id": f"{n}{HOSTILE}", "tool": {"output": HOSTILE}} for n in range(3)}
    bench.ask(model_server, *[f"{HOSTILE} [[answer: {HOSTILE}z]]"] * 3, fields=fields)
    bench.fill(dispatch_budget_s=0)
    bench.fill()
    before = bench.artifacts.rollouts.read_bytes()

    bench.fill()
    merge_paths([bench.artifacts.rollouts], tmp_path / "merged.jsonl")

    assert bench.artifacts.rollouts.read_bytes() == before
    merged = (tmp_path / "merged.jsonl").read_bytes()
    assert sorted(merged.split(b"\n")) == sorted(before.split(b"\n"))
    found = bench.rows()
    assert [saved["response"]["output"][0]["content"][0]["text"] for saved in found] == [f"{HOSTILE}z"] * 3
    assert {saved["tool"]["output"] for saved in found} == {HOSTILE}
    assert model_server.stats()["total"] == 3


def test_d6_minus_zero_is_a_score_and_infinity_is_not(bench: Bench) -> None:
    """-0.0 is a number like any other; the mean of it and 1 is one half, and what is not finite is a failure beside them."""
    bench.tasks({"reward_name": "minus-zero"}, {"reward_name": "one"}, {"reward_name": "minus-inf"})

    coverage = bench.fill(verifier="python:tests.outcomes.graders:named", retry={"max_attempts": 1}).coverage

    assert (coverage.mean, coverage.measured, coverage.failures_by_kind) == (0.5, 2, {"verifier_error": 1})
    assert [str(saved["reward"]) for saved in bench.rows()] == ["-0.0", "1.0"]


@pytest.mark.parametrize(
    ("line", "reads_as"),
    [
        pytest.param(b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":null,"response":{}}\n', "unscored", id="null"),
        pytest.param(b'{"_ng_task_index":0,"_ng_rollout_index":0,"response":{}}\n', "unscored", id="absent"),
        pytest.param(b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":NaN,"response":{}}\n', None, id="nan"),
        pytest.param(b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1e400,"response":{}}\n', None, id="beyond-float"),
        pytest.param(b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":true,"response":{}}\n', None, id="true"),
        pytest.param(b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":"1","response":{}}\n', None, id="text"),
    ],
)
def test_d6_a_null_in_an_old_file_is_unscored_and_what_is_no_number_is_refused(
    bench: Bench, line: bytes, reads_as: str | None
) -> None:
    """An older writer turned NaN into null: it counts as unscored, never as 0. Anything else that is no number stops the import."""
    bench.tasks({})
    bench.make_legacy([], [])
    bench.artifacts.rollouts.write_bytes(line)

    if reads_as is None:
        with pytest.raises(CorruptArtifactError, match=r"rollouts\.jsonl:1: not a result row"):
            bench.fill(allow_unsafe_resume=True)
    else:
        coverage = bench.fill(allow_unsafe_resume=True).coverage
        assert ({name.value for name, n in coverage.states.items() if n}, coverage.mean) == ({reads_as}, None)
    assert not bench.asked()


BIG = [2**64, -(2**63) - 1, 10**30, 2**63]


def test_d7_integers_of_any_length_pass_through_exactly(bench: Bench) -> None:
    """Seeds and token ids beyond 64 bits: the same digits in the inventory and in the row, and no float."""
    bench.tasks({"seeds": BIG, "mask": True}, {"seeds": BIG, "acts": [{}] * 3})

    bench.fill()

    for path in (bench.artifacts.inventory, bench.artifacts.rollouts, bench.artifacts.failures):
        assert jsonl.loads(path.read_bytes().splitlines()[0])["seeds"] == BIG


def test_d7_two_ids_that_one_float_stands_for_are_two_tasks(bench: Bench) -> None:
    """Ids that differ beyond 64 bits are two tasks, and changing one for the other is another dataset."""
    write = (bench.directory / "tasks.jsonl").write_text
    line = '{{"responses_create_params":{{"input":"?"}},"grade":1,"id":{}}}\n'
    write(line.format(10**30) + line.format(10**30 + 1))
    bench.fill()

    assert sorted(bench.asked()) == ["0-0", "1-0"]
    write(line.format(10**30) + line.format(10**30 + 2))
    with pytest.raises(IdentityError, match="dataset's content"):
        bench.fill()
