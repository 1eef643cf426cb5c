"""How the program starts: help without heavy imports, and one line for whatever is wrong with a command line."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from collector.verifiers.base import VERIFIERS
from orchestrate.cli.main import EVAL, main
from tests.support import testkit

HEAVY = ["pydantic", "hydra", "omegaconf", "submitit", "msgspec", "yaml", "filelock", "pycurl", "orjson"]


def gym(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrate.cli.main", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["eval", "--help"],
        ["--version"],
        ["eval", "submit", "--help"],
        ["eval", "run", "-h"],
        ["eval", "status", "-h"],
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom orchestrate.cli.main import main\n"
        f"try:\n    code = main({arguments!r})\nexcept SystemExit as error:\n    code = error.code\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded or code else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", ["run", "init", "reverify"])
def test_the_help_of_a_verifier_names_each_that_can_be_chosen(command: str) -> None:
    """``environment`` is chosen by an agent, and ``gym_server`` grades saved answers only."""
    shown = " ".join(gym("eval", command, "--help").stdout.split())
    named = shown.split("graded: " if command != "init" else "who grades: ")[1]

    for name in set(VERIFIERS.builtin) - {"environment", "gym_server"}:
        assert f"{name}," in named or f"{name}:module:function" in named
    assert ("gym_server" in named) is (command == "reverify")


@pytest.mark.parametrize("command", EVAL)
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = gym("eval", command, "--help")

    assert done.returncode == 0
    assert "Example: gym eval" in " ".join(done.stdout.split())
    assert command in gym("eval", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["evl"], "Did you mean 'eval'?", id="group"),
        pytest.param(["submit", "a.yaml"], "unknown command 'submit'. Did you mean 'gym eval submit'?", id="no-group"),
        pytest.param(["env", "start"], "'gym env' is a command of NeMo Gym", id="other-group"),
        pytest.param(["eval", "prepare"], "'gym eval prepare' is a command of NeMo Gym", id="other-command"),
        pytest.param(["eval", "compare", "--baseline", "a", "--candidates", "b"], "compare BASE CAND...", id="other-flags"),
        pytest.param(["eval", "reverify", "out"], "'out' is no override. An override is key=value", id="no-override"),
        pytest.param(
            ["eval", "run", "+prompt_config.user={a} b"], "keeps quotes: \"+prompt_config.user='...'\".", id="no-quotes"
        ),
        pytest.param(["eval", "submti"], "Did you mean 'submit'?", id="command"),
        pytest.param(["eval", "submit", "--dryrun", "x.yaml"], "Did you mean --dry-run?", id="flag"),
        pytest.param(["eval", "submit"], "no configuration was named", id="no-file"),
        pytest.param(["eval", "submit", "a.yaml", "b.yaml"], "'b.yaml' is no override", id="two-files"),
        pytest.param(["eval", "run", "--model-api-key", "sk-1"], "Use --model-api-key-env", id="secret-as-argument"),
        pytest.param(["eval", "run", "--limit", "abc"], "--limit: 'abc' is not a whole number. See", id="not-a-number"),
        pytest.param(["eval", "run", "-i"], "-i/--input: expected one argument. See", id="no-value"),
        pytest.param(["eval", "health-check", "x", "--workers", "y"], "'y' is not a whole number", id="not-a-count"),
        pytest.param(
            ["eval", "submit", "a.yaml", "--limit", "3"], "++driver.benchmarks.NAME.run.limit=VALUE", id="flag-of-run"
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_ends_with_2(arguments: list[str], told: str) -> None:
    done = gym(*arguments)

    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "sk-1" not in done.stderr


@pytest.mark.parametrize("name", ["d.jsonl", "link.jsonl"])
def test_a_dataset_is_no_place_for_its_own_answers(tmp_path: Path, name: str) -> None:
    dataset = tmp_path / "d.jsonl"
    dataset.write_text('{"question": "?", "expected_answer": "1"}\n')
    (tmp_path / "link.jsonl").symlink_to(dataset)
    flags = ["--model", "m", "--model-url", "http://127.0.0.1:9/v1", "--verifier", "number", "+prompt_config.user='{question}'"]
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "run", "-i", "d.jsonl", "-o", name, *flags]

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env=testkit.environment()
    )

    assert done.returncode == 2
    assert done.stderr == f"gym eval run: output_jsonl_fpath: {name} is the dataset itself.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.jsonl", "link.jsonl"]


def test_a_file_that_is_not_there_is_one_line_and_ends_with_3() -> None:
    done = gym("eval", "submit", "nothing.yaml")

    assert done.returncode == 3
    assert done.stderr == "gym eval submit: nothing.yaml: there is no such file. Check the path of the YAML file.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["aggregate", "{here}/none.jsonl", "-o", "{here}/file/x/m.jsonl"], id="aggregate"),
        pytest.param(
            [
                "init",
                "{here}/file/x.yaml",
                "--input",
                "{here}/d.jsonl",
                "--model",
                "m",
                "--model-url",
                "http://127.0.0.1:9/v1",
            ],
            id="init",
        ),
    ],
)
def test_a_path_that_cannot_be_written_is_one_line_and_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "d.jsonl").write_text('{"question": "?", "expected_answer": "1"}\n')
    command = [
        sys.executable,
        "-m",
        "orchestrate.cli.main",
        "eval",
        *(part.replace("{here}", str(tmp_path)) for part in arguments),
    ]

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env=testkit.environment()
    )

    assert done.returncode in {2, 3, 4, 5}
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["eval", "--help"], ["eval", "status", "--help"]], ids=" ".join)
def test_an_output_that_is_full_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrate.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 5
    assert done.stderr == "gym: the output: no space left on device. Make room, or send it elsewhere.\n"


def test_an_output_that_is_full_is_told_under_the_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = main(["eval", "schema"])
        # Closing would try again what is buffered.
        with contextlib.suppress(OSError):
            full.flush()
        with contextlib.suppress(OSError):
            full.close()

    assert code == 5
    assert capfd.readouterr().err == "gym eval schema: the output: no space left on device. Make room, or send it elsewhere.\n"


def test_an_interrupt_while_a_command_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)

    assert main(["eval", "status"]) == 130


def test_an_interrupt_before_a_command_is_known_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrate.cli.main._eval", interrupted)

    assert main(["eval", "status"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(PermissionError(13, "Permission denied", "/x/.eval.yaml.0123456789abcdef.tmp"), 4, id="owner"),
        pytest.param(PermissionError(13, "Permission denied", "/x/eval.yaml"), 4, id="owner-of-an-input"),
        pytest.param(OSError(30, "Read-only file system", "/x/.eval.yaml.0123456789abcdef.tmp"), 5, id="disk"),
    ],
)
def test_an_output_that_cannot_be_written_is_told_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, code: int
) -> None:
    def refused(_name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", refused)

    assert main(["eval", "init"]) == code
    assert capsys.readouterr().err.startswith("gym eval init: /x/eval.yaml: ")
