"""A file or run that a command line names and that is not there: exit code 3, one line, nothing created, whichever command."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrate.cli.main import main
from tests.orchestrate.project import Project, tree

MODEL = ["-m", "m", "--model-url", "http://127.0.0.1:9/v1", "--verifier", "exact_match"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a dataset and a submit YAML, which the commands are run in."""
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=1)
    project.config["driver"]["benchmarks"]["math"]["run"]["verifier"] = "exact_match"
    project.write()
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return project.root


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["run", "-i", "nope.jsonl", "-o", "o.jsonl", *MODEL], id="run-dataset"),
        pytest.param(["run", "--config", "nope.yaml"], id="run-config"),
        pytest.param(["run", "-i", "0.jsonl", "-o", "o.jsonl", *MODEL, "--prompt-config", "nope.yaml"], id="run-prompt"),
        pytest.param(["submit", "nope.yaml"], id="submit-yaml"),
        pytest.param(["submit", "submit.yaml/nope.yaml"], id="submit-below-a-file"),
        pytest.param(["submit", "submit.yaml", "driver.benchmarks.math.run.input_jsonl_fpath=nope.jsonl"], id="submit-dataset"),
        pytest.param(["submit", "submit.yaml", "+driver.benchmarks.math.run.prompt_config=nope.yaml"], id="submit-prompt"),
        pytest.param(["submit", "submit.yaml", "--cluster", "nope"], id="submit-cluster"),
        pytest.param(["reverify", "--rollouts", "nope.jsonl", "-o", "o.jsonl"], id="reverify-rollouts"),
        pytest.param(["reverify", "--rollouts", "0.jsonl", "--inputs", "nope.jsonl", "-o", "o.jsonl"], id="reverify-inputs"),
        pytest.param(["reverify", "--config", "nope.yaml"], id="reverify-config"),
        pytest.param(["aggregate", "-i", "nope*.jsonl", "-o", "o.jsonl"], id="aggregate-glob"),
        pytest.param(["aggregate", "nope", "-o", "o.jsonl"], id="aggregate-run"),
        pytest.param(["merge", "nope.jsonl", "-o", "o.jsonl"], id="merge-file"),
        pytest.param(["merge", "--check", "nope.jsonl"], id="merge-check"),
        pytest.param(["compare", "nope.jsonl", "0.jsonl"], id="compare"),
        pytest.param(["init", "x.yaml", "--input", "nope.jsonl", "--model", "m", "--model-url", "http://h/v1"], id="init-dataset"),
        *(pytest.param([name, "nope"], id=name) for name in ("status", "watch", "logs", "cancel", "resubmit", "clean", "unlock")),
        pytest.param(["why", "nope", "0-0"], id="why"),
        *(pytest.param([*words, "nope"], id=words[0]) for words in (["report"], ["health-check"], ["export", "csv"])),
    ],
)  # fmt: skip
def test_what_is_named_and_not_there_is_told(folder: Path, command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    before = tree(folder)

    code = main(["eval", *command])

    told = capfd.readouterr().err
    assert code == 3, told
    assert told.startswith(f"gym eval {command[0]}: ")
    assert (told.count("\n"), "nope" in told) == (1, True)
    assert tree(folder) == before


def test_a_file_that_is_there_and_unreadable_is_another_mistake(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "folder.yaml").mkdir()

    code = main(["eval", "submit", "folder.yaml"])

    assert code == 2
    assert "folder.yaml: cannot be read: is a directory" in capfd.readouterr().err


def test_a_prompt_in_the_yaml_is_told_with_its_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = yaml.safe_load((folder / "submit.yaml").read_text())
    data["driver"]["benchmarks"]["math"]["run"]["prompt_config"] = "gone.yaml"
    (folder / "submit.yaml").write_text(yaml.safe_dump(data))

    code = main(["eval", "submit", "submit.yaml"])

    assert code == 3
    assert "gone.yaml: there is no such prompt file" in capfd.readouterr().err
