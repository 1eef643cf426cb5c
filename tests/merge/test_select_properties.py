"""Selection, order and statistics under Hypothesis, against the plainest code that does the same."""

from __future__ import annotations

import math
import statistics
from array import array

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.formats.rollout_key import key_of, repeat_of, task_of
from collector.state.codes import Code
from collector.state.history import History
from merge.inputs.select import OverlapError, merge_keys, select_rows
from merge.metrics.figures import pass_at, quantile, summarize
from merge.metrics.table import RowTable
from merge.rows.blocks import RowBlock
from merge.rows.numbers import NumberReader

KEYS = st.lists(st.integers(0, 200), unique=True, max_size=40)


@given(KEYS, st.lists(st.integers(0, 4), min_size=40, max_size=40))
def test_merged_keys_are_every_key_once_in_rising_order(keys: list[int], places: list[int]) -> None:
    shards = [array("q", sorted(key for i, key in enumerate(keys) if places[i] == shard)) for shard in range(5)]

    assert list(merge_keys(shards)) == sorted(keys)


@given(KEYS.filter(bool), st.data())
def test_a_key_in_two_shards_is_never_passed_over(keys: list[int], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(keys))
    others = data.draw(st.sets(st.integers(201, 300), max_size=5))

    with pytest.raises(OverlapError) as caught:
        merge_keys([array("q", sorted(keys)), array("q", sorted({twice, *others}))])

    assert caught.value.key == twice


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_a_key_holds_task_and_repeat(task: int, repeat: int) -> None:
    assert (task_of(key_of(task, repeat)), repeat_of(key_of(task, repeat))) == (task, repeat)


@given(st.lists(st.sampled_from(Code), max_size=30), st.randoms(use_true_random=False))
def test_exactly_the_rollouts_with_a_row_are_selected(codes: list[Code], random) -> None:
    keys = list(range(len(codes)))
    random.shuffle(keys)
    history = History(len(codes))
    history.codes[:] = bytes(codes)
    history.offsets = array("q", (10 * i for i in range(len(codes))))

    rows = select_rows(keys, history)

    wanted = sorted((keys[i], 10 * i) for i, code in enumerate(codes) if code in {2, 3, 4})
    assert list(zip(rows.keys, rows.offsets, strict=True)) == wanted


NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=40)


@given(NUMBERS)
def test_a_summary_is_what_the_standard_library_says(values: list[float]) -> None:
    found = summarize(values)

    assert found is not None
    assert found.mean == math.fsum(values) / len(values)
    assert (found.min, found.max) == (min(values), max(values))
    assert found.median == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-12)
    assert found.std == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-6)


@given(NUMBERS, st.randoms(use_true_random=False))
def test_a_mean_does_not_depend_on_the_order_of_its_rows(values: list[float], random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)

    assert summarize(shuffled).mean == summarize(values).mean  # type: ignore[union-attr]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_quartiles_are_those_of_the_standard_library(values: list[float]) -> None:
    wanted = statistics.quantiles(values, n=4, method="inclusive")

    found = [quantile(sorted(values), fraction) for fraction in (0.25, 0.5, 0.75)]

    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@given(st.integers(1, 60), st.data())
def test_pass_at_k_rises_with_k_and_stays_a_probability(samples: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, samples))

    chances = [pass_at(k, samples=samples, right=right) for k in range(1, samples + 1)]

    assert chances[0] == right / samples
    assert all(0 <= chance <= 1 for chance in chances)
    assert chances == sorted(chances)
    assert chances[-1] == (1.0 if right else 0.0)


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


@given(
    st.dictionaries(st.text(max_size=6), SCALARS | st.lists(SCALARS, max_size=2), max_size=6),
    st.dictionaries(st.text(max_size=6), SCALARS, max_size=4),
    st.booleans(),
)
def test_the_numbers_of_a_row_are_those_a_plain_reading_finds(row: dict, usage: dict, masked: bool) -> None:
    line = orjson.dumps({**row, "response": {"usage": usage}, "mask_sample": masked})

    table = RowTable()
    table.add(NumberReader().read(RowBlock([0], [memoryview(line)])))

    flags = {"mask_sample", "execute_only"}
    own = {k: v for k, v in row.items() if not k.startswith("_") and isinstance(v, int | float) and k != "response"}
    used = {k: v for k, v in usage.items() if not k.startswith("_") and isinstance(v, int | float)}
    wanted = {k: float(v) for k, v in {**own, **used}.items() if k not in flags}
    assert {name: table.column(name)[0] for name in table.fields} == ({} if masked else wanted)
    assert (list(table.keys), list(table.masked)) == (([], [0]) if masked else ([0], []))
