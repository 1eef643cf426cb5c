"""A run that did not complete says why, in the words of its jobs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orchestrate.jobs.job import run_shard
from orchestrate.jobs.storage import storage_error
from orchestrate.status.last_words import last_words
from tests.orchestrate.project import Project


def test_a_wait_for_a_service_that_cannot_start_tells_its_last_words(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.config["services"]["policy"]["command"] = ["bash", "-c", "echo no such checkpoint; exit 3"]
    project.benchmark("math", tasks=2)

    said = project.submit("--wait", code=6)

    assert "ended with exit code 3" in said
    assert "no such checkpoint" in said
    assert "gym eval logs" in said
    told = [line for line in project.gym("status").stdout.splitlines() if line.startswith("math: a job ended: ")]
    assert len(told) == 1
    assert "ended with exit code 3" in told[0]
    assert project.status()["benchmarks"][0]["job_endings"] == [told[0].removeprefix("math: a job ended: ")]


def test_a_job_that_the_disk_keeps_from_publishing_ends_in_a_line(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.config["services"]["policy"]["command"] = ["bash", "-c", "exit 3"]
    project.benchmark("math", tasks=2)
    project.submit("--wait", code=6)
    mark = project.run_dir / "math" / "ended-processes"
    mark.unlink()
    mark.mkdir()

    said = project.submit("--wait", code=6)

    assert "what there is was not published: " in project.logs()
    assert "ended-processes: Is a directory" in project.logs()
    assert "Traceback" not in project.logs()
    assert "ended with exit code 3" in said


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device"),
            "math shard 0: No space left on device. Make room, then run the submit command again.",
            id="write",
        ),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device", "/runs/x"),
            "math shard 0: /runs/x: No space left on device. Make room, then run the submit command again.",
            id="file",
        ),
        pytest.param(
            OSError(errno.EACCES, "Permission denied", "/runs/x"),
            "math shard 0: /runs/x: Permission denied. Mend that, then submit again.",
            id="owner",
        ),
    ],
)
def test_a_disk_is_told_in_a_line(error: OSError, told: str) -> None:
    assert str(storage_error(error, "math shard 0")) == told


def test_an_error_that_is_no_disks_stays_a_bug() -> None:
    assert storage_error(OSError(errno.EBADF, "Bad file descriptor"), "math shard 0") is None


def test_a_full_disk_while_a_shard_begins_ends_the_job_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_run: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("orchestrate.jobs.job.read_plan", full)

    with pytest.raises(SystemExit, match="5"):
        run_shard("/runs/x", "math", "0")

    assert capsys.readouterr().err == (
        "gym eval: math shard 0: No space left on device. Make room, then run the submit command again.\n"
    )


def test_equal_reasons_are_said_once_and_a_job_that_went_on_has_none(tmp_path: Path) -> None:
    for name, text in (("a", "gym eval: full\n"), ("b", "gym eval: full\n"), ("c", "gym eval: cut\n12 of 12 done\n")):
        (tmp_path / f"job-{name}.log").write_text(text)

    assert last_words(tmp_path, of="math", shards={0}) == ["full"]


def test_shards_that_need_no_explanation_give_none(tmp_path: Path) -> None:
    """A job that was preempted waits again, and a cancelled one was followed by one that finished: their words are history."""
    for shard in range(3):
        (tmp_path / f"job-1_{shard}.log").write_text(f"gym eval: math shard {shard} of 3: 5 of 9 rollouts are unfinished.\n")
    (tmp_path / "job-2.log").write_text(
        "gym eval: code shard 1: the disk is full.\ngym eval: math shard 1: the disk is full.\n"
    )

    said = last_words(tmp_path, of="math", shards={1})

    assert sorted(said) == ["math shard 1 of 3: 5 of 9 rollouts are unfinished.", "math shard 1: the disk is full."]
