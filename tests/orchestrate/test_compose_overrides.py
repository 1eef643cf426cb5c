"""Overrides on the command line: Hydra's grammar, exact values, its own hints in one line, and no folder left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.errors import ConfigError
from orchestrate.config.compose import compose_data, compose_file
from orchestrate.config.yaml_file import is_literal

TEXT = """
_model: org/m
services: {m: {served_model_name: "${_model}", url: "http://h/v1?a=b"}}
driver: {shards: 2, note: "a, b: c", when: 2024-01-01, big: 12345678901234567890}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "it's a file.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        pytest.param("driver.shards=8", "shards", 8, id="change"),
        pytest.param("+driver.new=1e3", "new", 1000.0, id="add"),
        pytest.param("++driver.shards=9", "shards", 9, id="either-existing"),
        pytest.param("++driver.new=[a,b]", "new", ["a", "b"], id="either-new-list"),
        pytest.param("driver.note='x,y'", "note", "x,y", id="quoted-comma"),
        pytest.param("driver.note='a=b'", "note", "a=b", id="equals-sign"),
        pytest.param("driver.note=null", "note", None, id="null"),
        pytest.param("driver.note=/a b/c.yaml", "note", "/a b/c.yaml", id="path-with-blank"),
    ],
)
def test_an_override_arrives_exactly(file: Path, override: str, key: str, value: Any) -> None:
    assert compose_file(file, [override])["driver"][key] == value


@pytest.mark.parametrize(
    ("override", "told"),
    [
        pytest.param(
            "driver.shard=8",
            "there is no key 'driver.shard' to change. Did you mean 'driver.shards'? To add a new one use +driver.shard=8.",
            id="last",
        ),
        pytest.param("servces.m.url='a b. c'", "Did you mean 'services.m.url'?", id="first"),
        pytest.param("driver.limit=4", "To append to your config use +driver.limit=4.", id="nothing-near"),
        pytest.param("driver.shards.x=4", "Could not override 'driver.shards.x'", id="below-a-value"),
    ],
)
def test_a_key_that_is_not_there_is_told_with_the_one_that_was_meant(file: Path, override: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compose_file(file, [override])

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_tilde_removes(file: Path) -> None:
    assert "note" not in compose_file(file, ["~driver.note"])["driver"]


def test_values_of_the_file_arrive_exactly_and_interpolation_is_resolved(file: Path) -> None:
    data = compose_file(file, ["_model=org/n"])

    assert data["services"]["m"] == {"served_model_name": "org/n", "url": "http://h/v1?a=b"}
    assert data["driver"] == {"shards": 2, "note": "a, b: c", "when": "2024-01-01", "big": 12345678901234567890}


@pytest.mark.parametrize(
    ("override", "told"),
    [
        pytest.param("driver.shard=8", "use +driver.shard=8", id="new-key-without-plus"),
        pytest.param("+driver.shards=8", "++driver.shards=8", id="plus-on-existing"),
        pytest.param("driver.note=a,b", "key='value1,value2'", id="comma"),
        pytest.param("driver.note=[a", "override 'driver.note=[a' cannot be read", id="unfinished-list"),
        pytest.param("driver.note=a=b", "override 'driver.note=a=b' cannot be read", id="equals-sign-without-quotes"),
        pytest.param("~driver.nothing", "driver.nothing", id="remove-what-is-not-there"),
        pytest.param("driver.note=${nope}", "nope", id="unknown-interpolation"),
    ],
)
def test_a_wrong_override_is_one_line_with_hydras_hint(file: Path, override: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_file(file, [override])

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "multirun" not in str(caught.value)


def test_no_outputs_folder_is_made(file: Path) -> None:
    compose_file(file, ["hydra.run.dir=/nowhere/x"])

    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"# only a comment\n", "is empty", id="comment-only"),
        pytest.param(b"- a\n- b\n", "a list at the top level", id="list"),
        pytest.param(b"just text", "a str at the top level", id="text"),
        pytest.param(b"a: 1\nb: 2\na: 3\n", "line 3: found duplicate key a", id="duplicate-key"),
        pytest.param(b"a:\n\tb: 1\n", "line 2", id="tab"),
        pytest.param(b"a: &x [*x]\n", "alias contains itself", id="alias-loop"),
        pytest.param(b"a: \xff\xfe\n", "not UTF-8", id="not-text"),
        pytest.param(b"a: [1, 2\n", "not valid YAML", id="unfinished"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        compose_file(path, [])

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    levels = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    path.write_text("\n".join(levels))

    with pytest.raises(ConfigError, match="aliases multiply"):
        compose_file(path, [])


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        compose_file(tmp_path, [])


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfjob: 1\n")

    assert compose_file(path, []) == {"job": 1}


def test_an_ordinary_alias_is_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n")

    assert compose_file(path, ["c.b=5"]) == {"a": {"b": 1}, "c": {"b": 5}, "d": {"b": 1, "e": 2}}


@pytest.mark.parametrize("command", ["echo ${HOME:-/root}", "echo ${@:1:3}"])
def test_a_shell_expansion_that_is_no_interpolation_is_told_in_one_line(tmp_path: Path, command: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"services:\n  policy:\n    command: '{command}'\n")

    with pytest.raises(ConfigError, match=r"meant for a shell is written \\\$") as caught:
        compose_file(path, [])

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "a: {b: '${oc.env:GYM_NOT_SET}/d.jsonl'}",
            "a.b: there is no variable GYM_NOT_SET. Export it, or write a default: ${oc.env:GYM_NOT_SET,DEFAULT}.",
            id="variable",
        ),
        pytest.param("a: ['${oc.env:GYM_NOT_SET}']", "a[0]: there is no variable GYM_NOT_SET. Export it,", id="in-a-list"),
        pytest.param("a: '${oc.env:HOME}${oc.env:NO_Y}'", "a: there is no variable NO_Y.", id="the-one-that-is-missing"),
        pytest.param("a: {b: '${c.d}'}", "a.b: ${c.d}: there is no such key in this file.", id="key"),
    ],
)  # fmt: skip
def test_a_reference_to_nothing_is_told_under_its_key(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        compose_file(path, [])

    assert str(caught.value).startswith(f"{path}: {told}")
    assert "interpolation" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        pytest.param("a=[]", "it gives a list where the file has keys with values", id="list"),
        pytest.param("c={d: 1}", "it gives keys with values where the file has a list", id="keys"),
    ],
)
def test_an_override_of_another_form_says_why_it_does_not_fit(tmp_path: Path, override: str, why: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: {b: 1}\nc: [2]\n")

    with pytest.raises(ConfigError) as caught:
        compose_file(path, [override])

    assert str(caught.value) == f"{path}: override {override!r} cannot be used: {why}."


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.sampled_from(["???", "${oc.env:HOME}", "a ${_m} b", "$HOME", "\\\\${x}"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.from_regex("[a-z]{1,8}", fullmatch=True), inner)),
    max_leaves=5,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.from_regex("run_[a-z]{1,8}", fullmatch=True), VALUES, max_size=3))
def test_what_is_said_literally_is_what_composing_would_give(data: dict[str, Any]) -> None:
    """A run by flags alone leaves composing out."""
    if is_literal(data):
        assert compose_data(data, [], folder=Path("/"), where="") == data


@pytest.mark.parametrize("value", ["${oc.env:HOME}", "???", "a$b"])
def test_what_composing_may_change_is_not_taken_literally(value: str) -> None:
    assert not is_literal({"a": [{"b": value}]})
