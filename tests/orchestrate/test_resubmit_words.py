"""What a resubmission says when there is nothing to do, when the YAML file was edited, and when Slurm refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrate.cli import resubmit
from orchestrate.run_words import shards_in_words
from orchestrate.runs.directory import RunDir, read_plan
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project, tree

REFUSE = "echo 'sbatch: error: invalid partition specified: nope' >&2; exit 1"


@pytest.fixture
def submitted(tmp_path: Path, fake: FakeSlurm) -> Project:
    """Two shards of three rollouts whose jobs ended without doing anything."""
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1h"})
    project.benchmark("a", tasks=6, shards=2)
    project.submit()
    fake.program("squeue", "exit 0")
    return project


def test_a_kind_that_no_failure_has_is_said_and_is_no_error(submitted: Project) -> None:
    before = tree(submitted.run_dir / "a")

    done = submitted.gym("resubmit", "--failed", "no_such_kind")
    shown = json.loads(submitted.gym("resubmit", "--failed", "no_such_kind", "--json").stdout)

    assert done.returncode == 0, done.stderr
    assert "nothing to run again: no unfinished rollout has 'no_such_kind' as its latest failure; failures" in done.stdout
    assert (shown["submitted"], shown["benchmarks"]) == (False, {})
    assert "no_such_kind" in shown["nothing"]
    assert tree(submitted.run_dir / "a") == before


def test_a_run_that_is_complete_has_nothing_to_run_again_and_no_failed_logs(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    project.benchmark("a", tasks=2, marks="[[mode: 400]]")
    project.submit("--wait", code=7)

    lost = project.gym("resubmit")
    kind = project.gym("resubmit", "--failed", "other")
    logs = project.gym("logs", "--failed")

    assert lost.returncode == kind.returncode == logs.returncode == 0, lost.stderr + kind.stderr + logs.stderr
    assert "2 rollouts failed for good or used up their attempts: --reset-attempts takes them, too." in lost.stdout
    assert "failures there are: agent_run_error 2." in kind.stdout
    assert "No shard is unfinished" in logs.stderr


@pytest.mark.parametrize("shards", ["0", "-1", "many"])
def test_a_number_of_shards_that_is_none_is_told_as_what_it_should_be(shards: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        resubmit.main([f"--shards={shards}"])

    assert ended.value.code == 2
    assert f"--shards: '{shards}' is not a whole number from 1" in capsys.readouterr().err


@pytest.mark.parametrize("edit", [pytest.param(False, id="as-it-was"), pytest.param(True, id="edited")])
def test_an_edited_file_is_told_with_what_is_used_instead(submitted: Project, edit: bool) -> None:
    submitted.config["compute"]["here"]["partition"] = "other"
    file = submitted.write() if edit else submitted.root / "submit.yaml"

    done = submitted.gym("resubmit", "--dry-run")
    submitted.submit()
    after = submitted.gym("resubmit", "--dry-run")

    note = f"{file} was edited since it was submitted, and what the run recorded then is used; gym eval submit with that file"
    assert done.returncode in {0, 4}
    assert (note in done.stderr) == edit
    assert done.stderr.count("\n") == edit
    # Submitted again, it is what the run goes by.
    assert "was edited" not in after.stderr
    (benchmark,) = read_plan(RunDir(submitted.run_dir)).benchmarks
    assert benchmark.generations == []


def test_a_file_that_is_gone_is_not_called_edited(submitted: Project) -> None:
    (submitted.root / "submit.yaml").unlink()

    assert submitted.gym("resubmit", "--dry-run").stderr == ""


def test_a_refused_resubmission_says_which_command_submits_its_shards(submitted: Project, fake: FakeSlurm) -> None:
    fake.program("sbatch", REFUSE)

    done = submitted.gym("resubmit")

    assert done.returncode == 5
    assert f"then run gym eval submit {submitted.root / 'submit.yaml'}: it submits what is missing." in done.stderr


@pytest.fixture
def refused(submitted: Project, fake: FakeSlurm) -> str:
    """The name of a run that Slurm refused as a whole, submitted after another one."""
    fake.program("sbatch", REFUSE)
    submitted.config["job"]["name"] = "nobody-has-it"
    submitted.submit(code=5)
    return "nobody-has-it"


@pytest.mark.parametrize("command", [pytest.param([name], id=name) for name in ("status", "why", "logs")])
def test_a_refused_run_does_not_hide_the_one_before_it(submitted: Project, refused: str, command: list[str]) -> None:
    (first,) = (path.name for path in submitted.runs.iterdir() if path.name != refused)

    done = submitted.gym(*command, *(["0-0"] if command == ["why"] else []))

    told = f"gym eval: note: {refused}, which was submitted last, was refused by the scheduler and has no jobs; this is the run"
    assert told in done.stderr
    assert first in done.stdout + done.stderr.replace(told, "")


@pytest.mark.parametrize("command", ["cancel", "resubmit"])
def test_a_command_that_acts_does_not_guess_behind_a_refused_run(submitted: Project, refused: str, command: str) -> None:
    before = {path: data for path, data in tree(submitted.runs).items() if not path.endswith(".lock")}

    done = submitted.gym(command)

    assert done.returncode == 2
    assert f"{refused}, which was submitted last, was refused by the scheduler" in done.stderr
    assert "Name the run that you mean." in done.stderr
    assert {path: data for path, data in tree(submitted.runs).items() if not path.endswith(".lock")} == before


def test_a_refused_run_is_listed_as_that_and_shown_by_its_name(submitted: Project, refused: str) -> None:
    listed = submitted.gym("list").stdout.splitlines()

    assert [line.split()[2] for line in listed[1:]] == ["0/1", "refused"]
    assert "not submitted: sbatch: sbatch: error: invalid partition" in submitted.gym("status", refused).stdout


def test_the_only_run_is_the_last_one_though_it_was_refused(project: Project, fake: FakeSlurm) -> None:
    fake.program("sbatch", REFUSE)
    project.benchmark("a", tasks=2)
    project.submit(code=5)

    done = project.gym("status")

    assert "shard 0 not submitted" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("indexes", "words"),
    [
        pytest.param([3], "shard 3", id="one"),
        pytest.param([0, 1], "shards 0 and 1", id="two"),
        pytest.param([0, 1, 2], "shards 0 to 2", id="a-row"),
        pytest.param([0, 2, 5], "shards 0, 2 and 5", id="a-few"),
        pytest.param(list(range(0, 24, 2)), "12 shards", id="many"),
    ],
)
def test_shards_are_named_as_people_count_them(indexes: list[int], words: str) -> None:
    assert shards_in_words(indexes) == words
