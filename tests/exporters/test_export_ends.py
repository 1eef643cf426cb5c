"""How ``gym eval export`` ends: what it says, its exit code, and what is left where it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from exporters.atif.exporter import AtifExporter
from exporters.source import ExportError
from orchestrate.cli.export import main
from orchestrate.cli.main import main as gym
from tests.exporters.command_line import flags_of, two_rollouts


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    return two_rollouts(tmp_path)


@pytest.fixture
def flags(rollouts: Path) -> list[str]:
    return flags_of(rollouts)


def test_success_is_one_line_and_its_details(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*flags, "--session-id", "s"])

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Export atif: succeeded"
    assert "  trajectories: 2" in said
    assert f"  folder: {tmp_path / 'o'}" in said


def test_a_parent_that_is_a_file_is_a_failure_and_nothing_is_published(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blocked").write_text("")
    arguments = ["--rollouts", str(rollouts), "--output-dir", str(tmp_path / "blocked" / "atif")]

    code = main([*arguments, "--session-id", "s", "--agent-version", "1.2.3"])

    assert code == 1
    said = capsys.readouterr().out
    assert said.startswith("Export atif: failed: ")
    assert "blocked" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked", "r.jsonl"]


def test_rows_that_cannot_be_read_are_a_failure_without_output(
    flags: list[str], rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts.write_text("{broken\n")

    assert main([*flags, "--session-id", "s"]) == 1

    assert "invalid JSON" in capsys.readouterr().out
    assert not (tmp_path / "o").exists()


def test_a_missing_run_is_one_line_that_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.jsonl"
    arguments = ["--output-dir", str(tmp_path / "o"), "--session-id", "s", "--agent-version", "1.0.0"]

    assert gym(["eval", "export", "--rollouts", str(missing), *arguments]) == 3

    assert f"{missing}: there is no such run, directory or file." in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "rows"), ExportError("two rows are wrong.")], ids=str
)
def test_what_an_operator_can_mend_is_a_failure(
    error: Exception, flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(AtifExporter, "publish", fail)

    assert main(flags) == 1
    assert capsys.readouterr().out.startswith("Export atif: failed: ")


def test_a_bug_is_an_exception(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(AtifExporter, "publish", fail)

    with pytest.raises(RuntimeError, match="a bug"):
        main(flags)


def test_a_destination_that_exists_is_untouched(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine").write_text("mine")

    assert main([*flags, "--session-id", "s"]) == 1

    assert "exists already" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["mine"]


def test_nothing_is_left_in_the_working_directory(flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    main([*flags, "--session-id", "s"])

    assert list((tmp_path / "cwd").iterdir()) == []


def test_the_result_can_be_read_by_a_program(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*flags, "--session-id", "s", "--json"])

    result = json.loads(capsys.readouterr().out)
    assert (result["exporter"], result["state"]) == ("atif", "succeeded")


def test_an_export_of_a_file_imports_no_more_than_it_needs(flags: list[str], tmp_path: Path) -> None:
    heavy = ["numpy", "hydra", "omegaconf", "yaml", "filelock", "submitit", "asyncio", "orchestrate.runs.directory"]
    code = (
        "import sys\nfrom orchestrate.cli.main import main\n"
        f"code = main({['eval', 'export', 'atif', '--session-id', 's', *flags]!r})\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded or code else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o" / "manifest.jsonl").exists()
