"""An output where no file can be made: said as that, at once, before anybody waits for a lock that can never be taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.errors import StorageError
from orchestrate.cli.main import main
from orchestrate.output_place import check_place
from tests.orchestrate.project import Project, tree

MODEL = ["-m", "m", "--model-url", "http://127.0.0.1:9/v1", "--verifier", "exact_match"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=1)
    monkeypatch.chdir(project.root)
    (project.root / "0.jsonl").write_text('{"responses_create_params": {"input": "1+1?"}, "expected_answer": "2"}\n')
    (project.root / "r.jsonl").write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {}}\n')
    return project.root


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["run", "-i", "0.jsonl", *MODEL], id="run"),
        pytest.param(["aggregate", "-i", "r.jsonl"], id="aggregate"),
        pytest.param(["merge", "r.jsonl"], id="merge"),
        pytest.param(["reverify", "--rollouts", "r.jsonl", "--verifier", "exact_match"], id="reverify"),
    ],
)
@pytest.mark.parametrize(
    ("output", "told"),
    [
        # /proc takes no files, and says so with the error that a lock takes for one that was just removed.
        pytest.param("/proc/x.jsonl", "/proc/x.jsonl: no file can be made in /proc: No such file or directory.", id="proc"),
        pytest.param(
            "/proc/y/x.jsonl", "/proc/y/x.jsonl: no file can be made in /proc: No such file or directory.", id="below"
        ),
        pytest.param("r.jsonl/x.jsonl", "r.jsonl: Not a directory.", id="below-a-file"),
    ],
)
def test_a_place_without_files_is_told(
    folder: Path, command: list[str], output: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = tree(folder)

    code = main(["eval", *command, "-o", output])

    said = capfd.readouterr().err
    assert (code, said.count("\n")) == (5, 1), said
    assert told in said
    assert "lock" not in said
    assert tree(folder) == before


def test_a_place_that_will_be_made_is_judged_by_the_nearest_one_there(tmp_path: Path) -> None:
    check_place(tmp_path / "a" / "b" / "out.jsonl")

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError):
        check_place(Path("/proc/a/b/out.jsonl"))
