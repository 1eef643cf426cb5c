"""Where ``gym eval run`` writes: an input or what is somebody else's is never replaced, whatever name or link leads to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from orchestrate.cli.main import main
from tests.merge.targets import snapshot
from tests.support.model_server import ModelServer

RUN = RunArtifacts(Path("o.jsonl"))
#: Files without which there is no run, and those that are replaced.
RECORDED = (RUN.rollouts, RUN.manifest, RUN.journal, RUN.inventory, RUN.failures, RUN.config)
REPORTS = (RUN.coverage, RUN.aggregate)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run in a folder with a dataset, notes, an empty file and another run; its model's server is not there."""
    monkeypatch.chdir(tmp_path)
    Path("d.jsonl").write_text('{"q": "1+1?", "expected_answer": "2"}\n')
    Path("theirs").mkdir()
    Path("theirs/notes.txt").write_text("sampled in May\n")
    Path("theirs/empty").touch()
    os.mkfifo("theirs/pipe")
    other = RunArtifacts(Path("theirs/r.jsonl"))
    for path in (other.rollouts, *other.recovery_companions, other.coverage, other.aggregate, other.config):
        path.write_text('{"theirs": 1}\n')
    prompt = "+prompt_config.user='{q} [[answer: 2]]'"
    return ["run", "-i", "d.jsonl", "-o", "o.jsonl", "-m", "test-model", "--verifier", "number", prompt]


def refused(words: list[str], capfd: pytest.CaptureFixture[str], *, code: int = 4) -> str:
    """What the refusal says; AssertionError when a file was made or changed, or the run was begun."""
    before = snapshot(Path.cwd())

    ended = main(["eval", *words, "--model-url", "http://127.0.0.1:9/v1"])

    told = capfd.readouterr().err
    assert (ended, told.count("\n")) == (code, 1), told
    assert snapshot(Path.cwd()) == before
    return told


def to(place: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(place)


def looped(path: Path) -> None:
    path.symlink_to(path.name)


def hard_dataset(path: Path) -> None:
    path.hardlink_to("d.jsonl")


@pytest.mark.parametrize("path", [*RECORDED, *REPORTS], ids=str)
@pytest.mark.parametrize(
    "put",
    [
        pytest.param(to("theirs/nothing"), id="dangling"),
        pytest.param(to("d.jsonl"), id="dataset"),
        pytest.param(to("theirs/notes.txt"), id="notes"),
        pytest.param(to("theirs/empty"), id="empty-file"),
        pytest.param(to("theirs"), id="directory"),
        pytest.param(to("theirs/pipe"), id="link-to-a-pipe"),
        pytest.param(looped, id="loop"),
        pytest.param(hard_dataset, id="hard-dataset"),
        pytest.param(os.mkdir, id="a-directory"),
        pytest.param(os.mkfifo, id="pipe"),
    ],
)
def test_what_lies_at_the_place_of_a_file_is_told_and_stays(
    words: list[str], capfd: pytest.CaptureFixture[str], path: Path, put: Callable[[Path], None]
) -> None:
    """Coverage, metrics and settings replaced a dataset or notes behind a link, and a pipe was waited for without end."""
    put(path)

    told = refused(words, capfd, code=2 if path == RUN.rollouts and _is_slip(path) else 4)

    assert "o" in told


def _is_slip(path: Path) -> bool:
    return path.is_dir() or (path.exists() and path.samefile("d.jsonl"))


@pytest.mark.parametrize("path", [*RECORDED[1:], *REPORTS], ids=str)
def test_a_file_of_another_run_behind_a_link_stays(words: list[str], capfd: pytest.CaptureFixture[str], path: Path) -> None:
    path.symlink_to(f"theirs/r{path.name.removeprefix('o')}")

    refused(words, capfd)


@pytest.mark.parametrize("path", [*RECORDED, *REPORTS, RUN.health, RUN.verdicts, RUN.lock], ids=str)
@pytest.mark.parametrize("flag", ["-i", "--config", "--prompt-config"])
def test_an_input_that_has_the_name_of_a_file_of_the_run_stays(
    words: list[str], capfd: pytest.CaptureFixture[str], path: Path, flag: str
) -> None:
    """``--config math_config.yaml -o math.jsonl`` replaced the settings that it was given with those that it used."""
    if flag == "-i":
        Path("d.jsonl").rename(path)
    else:
        path.write_text("user: '{q}'\n" if flag == "--prompt-config" else "limit: 1\n")
    given = words[:-1] if flag == "--prompt-config" else words
    told = refused([*given, flag, str(path)], capfd, code=2 if path == RUN.rollouts and flag == "-i" else 4)

    assert path.name in told


def test_an_input_under_another_name_stays(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    RUN.aggregate.hardlink_to("d.jsonl")

    assert "is one of its inputs" in refused(words, capfd)


@pytest.mark.parametrize("path", [RUN.config, RUN.receipt], ids=str)
def test_settings_and_a_receipt_without_their_run_are_somebodys(
    words: list[str], capfd: pytest.CaptureFixture[str], path: Path
) -> None:
    path.write_text("written: by hand\n")

    assert f"files of a run without a manifest: {path.name}" in refused(words, capfd)


def test_a_report_may_stand_elsewhere_behind_a_link(words: list[str], model_server: ModelServer) -> None:
    Path("board").mkdir()
    Path("board/o_coverage.json").write_text("{}\n")
    RUN.coverage.symlink_to("board/o_coverage.json")

    assert main(["eval", *words, "--model-url", model_server.base_url]) == 0

    assert RUN.coverage.is_symlink()
    assert '"measured":1' in Path("board/o_coverage.json").read_text().replace(" ", "")


def test_what_a_crash_left_of_metrics_is_swept(words: list[str], model_server: ModelServer) -> None:
    """Of a run that was killed while it published them a hidden file stayed for ever."""
    left = Path(f".{RUN.aggregate.name}.0123456789abcdef.tmp")
    left.write_text("half")

    assert main(["eval", *words, "--model-url", model_server.base_url]) == 0

    assert RUN.aggregate.is_file()
    assert not left.exists()


@pytest.mark.parametrize("word", ["+policy_api_key=s3cr3t", "++policy_api_key='s3cr3t'", "policy_api_key=s3cr3t"])
def test_a_key_on_the_command_line_is_refused(words: list[str], capfd: pytest.CaptureFixture[str], word: str) -> None:
    """Every user of the machine reads it in the list of processes; the flag was refused for that, the override was not."""
    told = refused([*words, word], capfd, code=2)

    assert "every user of this machine" in told
    assert "s3cr3t" not in told


def test_a_key_by_its_variable_is_taken(words: list[str], model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "s3cr3t")

    more = ["--model-url", model_server.base_url, "+policy_api_key=${oc.env:MODEL_KEY}"]
    assert main(["eval", *words, *more]) == 0

    assert not [path for path in Path.cwd().iterdir() if path.is_file() and b"s3cr3t" in path.read_bytes()]
