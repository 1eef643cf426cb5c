"""Settings and prompts of odd shapes: each is one line with exit code 2, and nothing is made or waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from collector.errors import ConfigError
from collector.prompt import load_prompt
from collector.settings import RunSettings
from orchestrate.cli.main import main
from tests.orchestrate.project import Project, tree


@pytest.fixture
def submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A submit YAML that is right, in the current directory."""
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=1, verifier="exact_match")
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return project.write()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param("_x: " + "[" * 5000 + "]" * 5000, "nested too deeply", id="deep"),
        pytest.param("_x: " + "9" * 5000, "a value that cannot be read", id="long-number"),
        pytest.param("defaults: [submit]", "lead back", id="defaults-of-itself"),
    ],
)
def test_a_yaml_that_python_gives_up_on_is_told(
    submission: Path, capfd: pytest.CaptureFixture[str], more: str, told: str
) -> None:
    """Each was a traceback of thousands of lines."""
    submission.write_text(f"{submission.read_text()}{more}\n")
    before = tree(submission.parent)

    assert main(["eval", "submit", "submit.yaml", "--dry-run"]) == 2

    err = capfd.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert tree(submission.parent) == before


@pytest.mark.parametrize("name", ["a\nb", "m\u202eath", "a\0b", "a\x1b[2Jb", "a\u200bb"], ids=ascii)
def test_a_benchmark_is_called_what_can_be_seen(submission: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    """The preview printed it as it is."""
    data = yaml.safe_load(submission.read_text())
    data["driver"]["benchmarks"] = {name: data["driver"]["benchmarks"]["math"]}
    submission.write_text(yaml.safe_dump(data))

    assert main(["eval", "submit", "submit.yaml", "--dry-run"]) == 2

    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "<U+" in err
    assert name not in err


@pytest.mark.parametrize("place", ["~", "~/runs"])
def test_no_directory_is_called_as_a_shell_calls_home(submission: Path, capfd: pytest.CaptureFixture[str], place: str) -> None:
    """A run directory was made below one called ~, which whoever removes it writes in a shell."""
    data = yaml.safe_load(submission.read_text())
    data["job"]["output_path"] = place
    submission.write_text(yaml.safe_dump(data))

    assert main(["eval", "submit", "submit.yaml"]) == 2

    assert "job.output_path: begins with ~" in capfd.readouterr().err
    assert not Path("~").exists()


def test_an_output_is_no_home_either() -> None:
    with pytest.raises(ValueError, match=r"output_jsonl_fpath[\s\S]*begins with ~"):
        RunSettings.model_validate({"input_jsonl_fpath": "a", "output_jsonl_fpath": "~/o.jsonl"})


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"user: '{q}\xff'\n", "utf-8", id="bytes"),
        pytest.param("user: '{q}'\n".encode("utf-16"), "utf-8", id="utf-16"),
        pytest.param(b"user: a\nuser: b\n", "stands twice", id="a-key-twice"),
        pytest.param(b"user: " + b"[" * 3000 + b"]" * 3000, "nested too deeply", id="deep"),
        pytest.param(b"user: " + b"9" * 5000, "Exceeds the limit", id="long-number"),
        pytest.param(b"user: 7\n", "user: Input should be a valid string", id="number"),
        pytest.param(b"", "the file: ", id="empty"),
        pytest.param(b"user: '" + b"a" * (5 << 20) + b"'\n", "larger than 4 MiB", id="large"),
    ],
)
def test_a_prompt_file_that_is_none_is_told(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(data)

    with pytest.raises(ConfigError, match="not a prompt file") as caught:
        load_prompt(path)

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_a_prompt_is_read_from_a_file(tmp_path: Path, make: object) -> None:
    """A pipe was waited for without end."""
    make(tmp_path / "p.yaml")  # type: ignore[operator]

    with pytest.raises(ConfigError, match="no regular file"):
        load_prompt(tmp_path / "p.yaml")


def test_a_prompt_of_an_editor_on_windows_is_one(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"\xef\xbb\xbfuser: '{q}'\r\n")

    prompt = load_prompt(tmp_path / "p.yaml")

    assert prompt is not None
    assert prompt.user == "{q}"
