"""What a refusal says of two experiments: the setting that was chosen otherwise first, and no default that came with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.formats.differences import differences, flatten

NUMBER = {"type": "number", "rel_tol": 0.0, "markers": ["####"]}
EXACT = {"type": "exact_match", "strip": True}


@pytest.mark.parametrize(
    ("saved", "wanted", "told"),
    [
        pytest.param({"verifier": NUMBER}, {"verifier": EXACT}, ['verifier.type: saved "number", now "exact_match"'], id="another-type-alone"),
        pytest.param({"verifier": NUMBER}, {"verifier": {**NUMBER, "rel_tol": 0.1}}, ["verifier.rel_tol: saved 0.0, now 0.1"], id="the-same-type"),
        pytest.param(
            {"a": 1, "verifier": NUMBER}, {"a": 2, "verifier": EXACT}, ['verifier.type: saved "number", now "exact_match"', "a: saved 1, now 2"],
            id="types-first",
        ),
        pytest.param({"verifier": NUMBER}, {}, ['verifier.type: saved "number", now nothing'], id="a-section-that-is-gone"),
        pytest.param({"params": {}}, {"params": {"temperature": 0.5}}, ["params.temperature: saved nothing, now 0.5"], id="a-section-that-was-empty"),
        pytest.param({"params": {}}, {}, ["params: saved {}, now nothing"], id="an-empty-section-and-none"),
        pytest.param({"params": {}}, {"params": {"seed": None}}, ["params: saved {}, now nothing"], id="an-empty-section-and-nulls"),
        pytest.param({"typed": {"type": "a"}, "types": 1}, {"typed": {"type": "b"}, "types": 2}, ['typed.type: saved "a", now "b"', "types: saved 1, now 2"], id="names-that-begin-alike"),
        pytest.param({"text": "x" * 100}, {"text": "y"}, [f'text: saved "{"x" * 76}..., now "y"'], id="a-long-value"),
    ],
)  # fmt: skip
def test_each_difference_is_told_once(saved: dict[str, Any], wanted: dict[str, Any], told: list[str]) -> None:
    assert [difference.shown for difference in differences(saved, wanted)] == told


values = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.dictionaries(st.sampled_from(["type", "x", "y"]), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["p", "q", "type"]), values), st.dictionaries(st.sampled_from(["p", "q", "type"]), values)
)
def test_something_is_told_exactly_when_something_differs(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Null and absent are one."""
    old, new = ({key: value for key, value in flatten(side or None).items() if value is not None} for side in (saved, wanted))

    assert bool(differences(saved, wanted)) == (old != new)
