"""Reports of odd runs: tiny, all failed, named and filled by anybody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge.command import merge_paths
from orchestrate.cli.report import main
from orchestrate.report.bins import ticks
from orchestrate.report.charts import _label
from tests.merge.build import Plan, answered, failed, fill_all, plan


def merged(directory: Path, name: str = "bench", **more: int) -> Plan:
    made = plan(directory, shards=1, benchmark=name, **{"tasks": 1, **more})
    fill_all(made, lambda *_: answered(1.0))
    merge_paths([made.directory], made.merged.rollouts)
    return made


def page_of(path: Path, *more: str) -> str:
    out = path.parent / "page.html"
    assert main([str(path), "-o", str(out), *more]) == 0
    return out.read_text()


def words(page: str) -> str:
    return " ".join(re.sub(r"<(style|svg).*?</\\1>|<[^>]+>", " ", page, flags=re.DOTALL).split())


def test_one_of_a_thing_is_one_thing(tmp_path: Path) -> None:
    merged(tmp_path / "run")

    text = words(page_of(tmp_path / "run"))

    for told in ("1 of 1 rollout (100 %)", "1 session on 1 shard; 0 cut off", "merged: 1 row "):
        assert told in text


def test_a_run_that_failed_altogether_shows_no_score_and_what_failed(tmp_path: Path) -> None:
    made = plan(tmp_path / "run", shards=2, tasks=4)
    fill_all(made, lambda *_: failed())
    merge_paths([made.directory], made.merged.rollouts)

    text = words(page_of(tmp_path / "run"))

    assert "no score measured are 0 of 4 rollouts (0 %)" in text
    assert "agent_request_failed 4 rollouts" in text


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(b'"x": "\xff"', id="no-utf-8"),
        pytest.param(b'"\xff": 1', id="a-key-that-is-no-utf-8"),
        pytest.param(b'"x": NaN', id="not-a-number"),
        pytest.param(b'"response": {"usage": {"input_tokens": ' + b"9" * 400 + b"}}", id="a-count-beyond-any-float"),
        pytest.param(b'"reward": ' + b"9" * 400, id="a-reward-beyond-any-float"),
        pytest.param(b'"response": {"output": [{"content": [{"text": null}, 7]}]}', id="parts-without-text"),
        pytest.param(b'"x": ' + b'{"a":' * 600 + b"1" + b"}" * 600, id="deep"),
    ],
)
@pytest.mark.parametrize("content", [(), ("--content",)], ids=["plain", "with-content"])
def test_no_row_keeps_the_others_from_being_reported(member: bytes, content: tuple[str, ...], tmp_path: Path) -> None:
    good = b'{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}\n'
    odd = b'{"_ng_task_index": 1, "_ng_rollout_index": 0, ' + member + b"}\n"
    (tmp_path / "r.jsonl").write_bytes(odd + good)

    text = words(page_of(tmp_path / "r.jsonl", *content))

    assert "1 mean reward of 1 scored row " in text


@given(most=st.floats(1e-9, 1e12), whole=st.booleans())
def test_an_axis_has_few_round_numbers_that_lie_on_it(most: float, whole: bool) -> None:
    most = max(1.0, float(int(most))) if whole else most

    found = ticks(most, whole=whole)

    assert 2 <= len(found) <= 7
    assert found[0] == 0
    assert most / 2 <= found[-1] <= most * (1 + 1e-9)
    assert len({f"{tick:.3g}" for tick in found}) == len(found)
    if whole:
        assert all(tick.is_integer() for tick in found)


def test_the_counts_of_a_few_rollouts_stand_at_whole_numbers(tmp_path: Path) -> None:
    merged(tmp_path / "run", tasks=2)

    axes = re.findall(r'<g class="axis y.*?</g></g>', page_of(tmp_path / "run").replace("\n", ""))

    labels = [re.findall(r">([^<]+)</text>", axis) for axis in axes]
    assert ["0", "1", "2"] in labels
    assert all(len(set(shown)) == len(shown) for shown in labels)


def test_a_label_has_the_width_of_its_letters_whatever_the_script() -> None:
    assert _label("x" * 19, 18) == "x" * 17 + "…"
    assert _label("数" * 9, 18) == "数" * 9
    assert _label("数" * 10, 18) == "数" * 8 + "…"


@pytest.mark.parametrize(
    "member",
    [
        '"response": {"usage": {"input_tokens": "12", "output_tokens": true}}',
        '"response": {"usage": {"input_tokens": 12.5, "output_tokens": [3]}}',
        '"response": {"usage": "none"}',
        '"response": {"usage": [1]}',
        '"response": "just a text"',
        '"response": [{"usage": 1}]',
        '"response": 7',
    ],
)
def test_what_a_server_says_of_its_usage_costs_no_row_its_reward(member: str, tmp_path: Path) -> None:
    """A file without a journal: its score is the mean of its rows."""
    path = tmp_path / "r.jsonl"
    rows = ['"response": {"usage": {"input_tokens": 5, "output_tokens": 2}}, "reward": 0', f'{member}, "reward": 1']
    path.write_text("".join(f'{{"_ng_task_index": {task}, "_ng_rollout_index": 0, {row}}}\n' for task, row in enumerate(rows)))

    text = words(page_of(path))

    assert "0.5" in text
    assert "2 scored rows" in text


@pytest.mark.parametrize(
    "health",
    [
        pytest.param("{", id="half-a-file"),
        pytest.param('{"run": []}', id="no-object"),
        pytest.param('{"run": {"verdicts": [], "issues": {}}}', id="a-list"),
        pytest.param('{"run": {"verdicts": {"healthy": "many"}, "issues": {}}}', id="a-text"),
        pytest.param('{"run": {"verdicts": {"healthy": 1.5}, "issues": {}}}', id="half-a-row"),
        pytest.param('{"run": {"verdicts": {}, "issues": {"model_call_failed": true}}}', id="a-flag"),
    ],
)
def test_a_health_report_that_cannot_be_read_is_told(health: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1}\n')
    path.with_name("r_health.json").write_text(health)

    text = words(page_of(path))

    assert "its health report cannot be read" in text
    assert "Health of the rows" not in text
