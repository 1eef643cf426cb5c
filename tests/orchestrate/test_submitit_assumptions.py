"""What is relied on in submitit beyond its documentation; a new version that changes it fails here and not on a cluster."""

from __future__ import annotations

import inspect
import pickletools
from pathlib import Path
from typing import Any

import pytest

from orchestrate.executors.submitit_slurm import TemplateSlurmExecutor, array_ids, parse_job_id
from orchestrate.executors.tasks import shard_calls
from tests.orchestrate.fake_slurm import FakeSlurm


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", fake.env["PATH"])
    return fake


def executor(folder: Path) -> TemplateSlurmExecutor:
    lines = "#!/bin/bash\n#SBATCH --job-name=t\n"
    return TemplateSlurmExecutor(
        folder, script=lambda count: lines + (f"#SBATCH --array=0-{count - 1}\n" if count > 1 else ""), walltime_min=60
    )


@pytest.mark.parametrize("count", [1, 3], ids=["single", "array"])
def test_our_script_is_what_is_submitted(tmp_path: Path, fake: FakeSlurm, count: int) -> None:
    folder = tmp_path / "jobs" / "t"

    jobs = executor(folder).submit_array(shard_calls(tmp_path, [[("math", index)] for index in range(count)]))

    assert [job.job_id for job in jobs] == list(array_ids("101", count))
    assert [name for _, name, _ in fake.jobs()] == ["t"] * count
    assert fake.calls("sbatch") == [f"--parsable {folder / 'job.sh'}"]


def test_a_pickle_holds_a_reference_and_texts_only(tmp_path: Path, fake: FakeSlurm) -> None:
    executor(tmp_path / "t").submit_array(shard_calls(tmp_path, [[("math", 7)]]))

    data = (tmp_path / "t" / "0.pkl").read_bytes()

    names = [arg for op, arg, _ in pickletools.genops(data) if op.name in {"SHORT_BINUNICODE", "BINUNICODE"}]
    # By this name, so that a job that waits in the queue outlives an upgrade of the program.
    assert {"orchestrate.entry", "run_shard", "math", "7", str(tmp_path)} <= set(names)
    assert not any(name.startswith(("orchestrate.jobs", "orchestrate.executors", "collector", "merge")) for name in names)
    assert len(data) < 1000


def test_a_folder_with_slurms_patterns_in_its_name_is_taken_literally(tmp_path: Path, fake: FakeSlurm) -> None:
    folder = tmp_path / "%j %A_%a" / "t"

    executor(folder).submit_array(shard_calls(tmp_path, [[("math", 0)], [("math", 1)]]))

    assert sorted(path.name for path in folder.iterdir()) == ["0.pkl", "1.pkl", "job.sh"]


def test_submitit_still_has_the_hooks_that_are_overridden() -> None:
    import submitit
    from submitit.core.core import PicklingExecutor
    from submitit.core.job_environment import JobEnvironment
    from submitit.core.submission import process_job

    for owner in (PicklingExecutor, submitit.SlurmExecutor):
        assert list(inspect.signature(owner._internal_process_submissions).parameters) == ["self", "delayed_submissions"]
    assert "submit_array" in vars(submitit.core.core.Executor)
    assert list(inspect.signature(process_job).parameters) == ["folder"]
    assert "SIGTERM" in inspect.getsource(JobEnvironment._handle_signals)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("123\n", "123"),
        ("123;cluster\n", "123"),
        ("Welcome to node 42\n123\n", "123"),
        ("Submitted batch job 123\n", "123"),
        ("", None),
        ("Welcome to 2026!\n", None),
        ("error: 17 limits reached\n", None),
    ],
)
def test_the_job_id_is_the_last_word_or_none(output: str, expected: Any) -> None:
    assert parse_job_id(output) == expected
