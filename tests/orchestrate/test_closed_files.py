"""Files that their owner keeps to himself: one line and exit code 4 from every command, whether it would read or write them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrate.cli.main import main
from tests.merge.legacy_files import asked, row, write
from tests.orchestrate.project import tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else, and nobody is root to himself")

NOBODY = 65534
MODEL = [
    "-m",
    "m",
    "--model-url",
    "http://127.0.0.1:9/v1",
    "--verifier",
    "number",
    "+retry.max_attempts=1",
    "+retry.max_tries=1",
]
SERVED = ["--model", "m", "--model-url", "http://127.0.0.1:9/v1", "--compute", "local", "--prompt", "{q}"]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of nobody's with rows, a dataset, settings, a prompt and a directory; pytest's own are root's alone."""
    root = Path(tempfile.mkdtemp())
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.chdir(root)
    questions = [{**asked(task), "expected_answer": "4"} for task in range(2)]
    write(root / "r.jsonl", [row(0), row(1)], inventory=questions)
    Path("d.jsonl").write_text('{"q": "2+2?", "expected_answer": "4"}\n')
    Path("p.yaml").write_text("user: '{q}'\n")
    Path("s.yaml").write_text("limit: 1\n")
    Path("closed").mkdir()
    for path in (root, *root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    yield root
    shutil.rmtree(root)


def as_nobody(words: list[str], told: Path) -> int:
    """The exit code of the command as another user, in a process of its own that has loaded all that it needs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stderr = told.open("w")
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = main(["eval", *words])
            sys.stderr.close()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        pytest.param("d.jsonl", ["run", "-i", "d.jsonl", "-o", "o.jsonl", *MODEL], id="run-dataset"),
        pytest.param("s.yaml", ["run", "--config", "s.yaml", "-i", "d.jsonl", "-o", "o.jsonl", *MODEL], id="run-settings"),
        pytest.param("p.yaml", ["run", "-i", "d.jsonl", "-o", "o.jsonl", *MODEL, "--prompt-config", "p.yaml"], id="run-prompt"),
        pytest.param(
            "closed", ["run", "-i", "d.jsonl", "-o", "closed/o.jsonl", *MODEL, "--prompt-config", "p.yaml"], id="run-output"
        ),
        pytest.param("s.yaml", ["submit", "s.yaml", "--dry-run"], id="submit"),
        pytest.param("r.jsonl", ["reverify", "--rollouts", "r.jsonl", "-o", "b.jsonl", "--verifier", "number"], id="reverify"),
        pytest.param("r.jsonl", ["merge", "r.jsonl", "-o", "m.jsonl"], id="merge"),
        pytest.param("closed", ["merge", "r.jsonl", "-o", "closed/m.jsonl"], id="merge-output"),
        pytest.param("r.jsonl", ["health-check", "r.jsonl"], id="health-check"),
        pytest.param("r.jsonl", ["report", "r.jsonl", "-o", "p.html"], id="report"),
        pytest.param("d.jsonl", ["init", "e.yaml", "--input", "d.jsonl", *SERVED], id="init-dataset"),
        pytest.param("closed", ["init", "closed/e.yaml", "--input", "d.jsonl", *SERVED], id="init-output"),
        pytest.param("closed", ["status", "closed"], id="status"),
    ],
)
def test_what_its_owner_forbids_is_refused(folder: Path, tmp_path: Path, closed: str, words: list[str]) -> None:
    """It was 2, 3 or 5, by who met it first."""
    # What a command loads may lie in root's home.
    main(["eval", *words])
    for path in folder.iterdir():
        if path.name not in {"r.jsonl", "r_materialized_inputs.jsonl", "d.jsonl", "p.yaml", "s.yaml", "closed", "state"}:
            path.unlink()
    shutil.rmtree("closed")
    Path("closed").mkdir()
    os.chown(closed, 0, 0)
    Path(closed).chmod(0o700 if Path(closed).is_dir() else 0o600)
    before = tree(folder)

    code = as_nobody(words, tmp_path / "told")

    told = (tmp_path / "told").read_text()
    assert (code, told.count("\n")) == (4, 1), told
    assert "ermission denied" in told
    assert {name for name in tree(folder) if not name.endswith(".lock")} == set(before)
