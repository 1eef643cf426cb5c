"""What squeue and sacct print, as facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrate.scheduler import JobFact, Knowledge, SlurmScheduler, max_array_size
from tests.orchestrate.fake_slurm import FakeSlurm


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", fake.env["PATH"])
    return fake


def ask(*ids: str) -> dict[str, JobFact]:
    return SlurmScheduler().ask({"gym-a": ids})


def test_one_question_is_one_squeue_and_one_sacct(fake: FakeSlurm) -> None:
    SlurmScheduler().ask({f"gym-{n}": [f"{n}_{k}" for k in range(50)] for n in range(20)})

    assert len(fake.calls("squeue")) == 1
    assert len(fake.calls("sacct")) == 1


def test_no_jobs_no_question(fake: FakeSlurm) -> None:
    assert SlurmScheduler().ask({}) == {}
    assert fake.calls("squeue") == []


@pytest.mark.parametrize(
    ("squeue", "sacct", "knowledge", "is_live"),
    [
        pytest.param("echo '7|RUNNING|None'", "exit 1", Knowledge.KNOWN, True, id="running"),
        pytest.param("echo '7|COMPLETED|None'", "exit 1", Knowledge.KNOWN, False, id="completed"),
        pytest.param("echo '7|PREEMPTED|None'", "exit 1", Knowledge.KNOWN, True, id="preempted-may-be-requeued"),
        pytest.param("exit 0", "exit 1", Knowledge.NOT_THERE, False, id="forgotten-and-no-accounting"),
        pytest.param("exit 0", "echo '7|TIMEOUT'", Knowledge.KNOWN, False, id="only-the-books-know"),
        pytest.param("exit 0", "echo '7|CANCELLED by 0'", Knowledge.KNOWN, False, id="cancelled-by-somebody"),
        pytest.param("exit 0", "echo '7|RUNNING'", Knowledge.NOT_THERE, False, id="the-books-lag-behind"),
        pytest.param("exit 1", "exit 1", Knowledge.COULD_NOT_ASK, False, id="silence"),
        pytest.param("exit 1", "echo '7|COMPLETED'", Knowledge.KNOWN, False, id="queue-silent-books-sure"),
        pytest.param("exit 1", "echo '7|RUNNING'", Knowledge.KNOWN, True, id="queue-silent-books-say-running"),
        pytest.param("echo 'a warning without bars'", "exit 1", Knowledge.NOT_THERE, False, id="noise"),
    ],
)
def test_two_sources_make_one_fact(fake: FakeSlurm, squeue: str, sacct: str, knowledge: Knowledge, is_live: bool) -> None:
    fake.program("squeue", squeue)
    fake.program("sacct", sacct)

    fact = ask("7")["7"]

    assert (fact.knowledge, fact.is_live) == (knowledge, is_live)


def test_nothing_is_over_while_nobody_could_be_asked() -> None:
    assert not JobFact(Knowledge.COULD_NOT_ASK).is_over
    assert JobFact(Knowledge.NOT_THERE).is_over
    assert JobFact(Knowledge.KNOWN, "TIMEOUT").is_over


@pytest.mark.parametrize(
    ("program", "expected"),
    [("echo 'MaxArraySize            = 10001'", 10001), ("exit 1", 1001), ("echo nothing", 1001)],
    ids=["told", "silent", "not-told"],
)
def test_the_array_limit_is_the_sites_or_slurms_own(fake: FakeSlurm, program: str, expected: int) -> None:
    fake.program("scontrol", program)

    assert max_array_size() == expected
