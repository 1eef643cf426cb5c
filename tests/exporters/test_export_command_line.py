"""How ``gym eval export`` reads its command line: what flags and overrides mean, in any order, with and without a name."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.errors import ConfigError
from orchestrate.cli.export import main
from orchestrate.cli.export_words import compose_settings, split_tokens
from orchestrate.cli.main import main as gym
from tests.exporters.command_line import flags_of, two_rollouts


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    return two_rollouts(tmp_path)


@pytest.fixture
def flags(rollouts: Path) -> list[str]:
    return flags_of(rollouts)


def session_of(folder: Path) -> str:
    return json.loads((folder / "0-0.json").read_bytes())["session_id"]


NAMED = pytest.mark.parametrize("named", [[], ["atif"]], ids=["default", "named"])


@NAMED
def test_an_override_wins_over_a_flag_with_and_without_the_exporter(named: list[str], flags: list[str], tmp_path: Path) -> None:
    assert main([*named, "++session_id=override", "--session-id", "original", *flags]) == 0

    assert session_of(tmp_path / "o") == "override"


@NAMED
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_the_order_on_the_command_line_does_not_matter(
    named: list[str], order: tuple[int, ...], flags: list[str], tmp_path: Path
) -> None:
    parts = [["++session_id=b"], ["--session-id", "a"], flags]

    assert main([*named, *itertools.chain.from_iterable(parts[index] for index in order)]) == 0

    assert session_of(tmp_path / "o") == "b"


@NAMED
def test_hydra_settings_pass_through_unchanged(
    named: list[str], flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([*named, f"hydra.run.dir={tmp_path}/log", "+session_id=s", *flags]) == 0

    assert session_of(tmp_path / "o") == "s"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "r.jsonl"]


@NAMED
def test_a_deletion_removes_what_a_flag_set(named: list[str], flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gym(["eval", "export", *named, "~agent_version", *flags]) == 2

    said = capsys.readouterr().err
    assert "export.atif.agent_version: is missing" in said
    assert said.endswith(" Give --agent-version or +agent_version=VALUE.\n")


def test_an_override_in_front_is_no_name_of_an_exporter() -> None:
    assert split_tokens(["++a=1", "~b", "c.d=e"]) == (None, None, ["++a=1", "~b", "c.d=e"])
    assert split_tokens(["atif", "++a=1", "~b"]) == ("atif", None, ["++a=1", "~b"])
    assert split_tokens(["atif", "runs/a", "++a=1"]) == ("atif", "runs/a", ["++a=1"])
    assert split_tokens(["runs/a"]) == (None, "runs/a", [])
    assert split_tokens(["hydra.run.dir=/tmp/x"]) == (None, None, ["hydra.run.dir=/tmp/x"])
    assert split_tokens(["meta.k=v"]) == (None, None, ["meta.k=v"])


@pytest.mark.parametrize("token", ["rollouts_jsonl_fpath=r.jsonl", "meta.k=v"])
@NAMED
def test_a_bare_new_key_gets_hydras_own_hint(named: list[str], token: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gym(["eval", "export", *named, token]) == 2

    told = capsys.readouterr().err
    assert f"use +{token}" in told
    assert len(told.splitlines()) == 1


def test_a_key_set_by_a_flag_cannot_be_added_again(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gym(["eval", "export", "--session-id", "a", "+session_id=b", *flags]) == 2

    assert "session_id" in capsys.readouterr().err


def test_a_bare_override_changes_what_a_flag_set(flags: list[str], tmp_path: Path) -> None:
    assert main(["session_id=b", "--session-id", "a", *flags]) == 0

    assert session_of(tmp_path / "o") == "b"


def test_every_setting_can_be_an_override(rollouts: Path, tmp_path: Path) -> None:
    settings = {"rollouts_jsonl_fpath": rollouts, "output_dirpath": tmp_path / "o", "session_id": "s", "agent_version": "1.0.0"}

    assert main(["atif", *(f"+{key}={value}" for key, value in settings.items())]) == 0

    assert (tmp_path / "o" / "manifest.jsonl").is_file()


def test_an_unknown_exporter_is_a_usage_error_that_lists_the_choices(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nope", *flags])

    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "unknown exporter 'nope'" in told
    assert "atif, csv, inspect, mlflow, parquet, wandb" in told


def test_a_number_is_not_a_version(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gym(["eval", "export", "++agent_version=1", *flags]) == 2

    assert "export.atif.agent_version: Input should be a valid string" in capsys.readouterr().err


def test_the_former_flag_is_deprecated_through_the_logger(
    flags: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="orchestrate.cli.export"):
        assert main(["--format", "atif", "--session-id", "s", *flags]) == 0

    assert [record.message for record in caplog.records] == ["--format is deprecated: write 'gym eval export atif'."]
    assert session_of(tmp_path / "o") == "s"


def test_two_names_for_the_exporter_must_agree(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["csv", "--format", "atif", *flags])

    assert ended.value.code == 2
    assert "csv by its name and atif by --format" in capsys.readouterr().err


def test_without_rollouts_it_says_how_to_name_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert gym(["eval", "export"]) == 2

    assert "--rollouts FILE" in capsys.readouterr().err


@pytest.mark.parametrize("separator", ["=", ":", ",", " "])
def test_a_path_may_contain_what_hydra_reads_as_syntax(separator: str, rollouts: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"a{separator}b"
    folder.mkdir()
    rollouts.rename(folder / "r.jsonl")
    arguments = ["--rollouts", str(folder / "r.jsonl"), "--output-dir", str(folder / "o"), "--session-id", "s"]

    assert main([*arguments, "--agent-version", "1.0.0"]) == 0

    assert (folder / "o" / "0-0.json").is_file()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
AWKWARD = st.sampled_from(
    [
        "007", "1.10", "a=b", "#x", "ünïcödé", "'", '"', "a,b", "{a: 1}", "[1]", "${oc.env:HOME}", "\\${x}", "???", "null", "true",
        "1e3", " x ", "$x", "~x", "+x", "@x", "a\nb", "\\", "%j", "0x1f", "12:30:00", "!!int 3", "*a", "&a",
    ]
)  # fmt: skip


@settings(deadline=None)
@given(text=TEXT | AWKWARD)
def test_the_value_of_a_flag_arrives_as_it_was_written(text: str) -> None:
    assert compose_settings({"session_id": text, "agent_version": "1"}, []) == {"session_id": text, "agent_version": "1"}


@settings(deadline=None)
@given(text=AWKWARD)
def test_an_override_may_use_the_value_of_a_flag(text: str) -> None:
    composed = compose_settings({"session_id": text}, ["+agent_version=v-${session_id}"])

    assert composed["agent_version"] == f"v-{text}"


@pytest.mark.parametrize("text", ["007", "1.10", "a=b", "#x", "ü", "{a}", "a,b"])
def test_the_value_of_a_flag_arrives_in_the_exported_file(text: str, flags: list[str], tmp_path: Path) -> None:
    assert main([*flags, "--session-id", text]) == 0

    assert session_of(tmp_path / "o") == text


@pytest.mark.parametrize(
    ("override", "value"),
    [("+k=[a,b]", ["a", "b"]), ("+k='a,b'", "a,b"), ("+k=1.0.0", "1.0.0"), ("+k=1", 1), ("+k={a: 1}", {"a": 1})],
)
def test_overrides_keep_hydras_types(override: str, value: Any) -> None:
    assert compose_settings({}, [override]) == {"k": value}


def test_a_sweep_is_refused_instead_of_exporting_twice() -> None:
    with pytest.raises(ConfigError, match="a,b"):
        compose_settings({}, ["+session_id=a,b"])


def test_a_run_that_is_named_without_an_exporter_is_no_unknown_exporter(
    rollouts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a path without a slash; one with a slash was always taken for a run."""
    monkeypatch.chdir(rollouts.parent)

    code = gym(["eval", "export", rollouts.name])

    told = capsys.readouterr().err
    assert code == 3
    assert "Name an exporter first: gym eval export EXPORTER r.jsonl." in told
