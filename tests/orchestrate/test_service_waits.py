"""A job that waits for a service says so in its log, and status tells it: which service, where, since when and why."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrate.services import waiting
from orchestrate.services.endpoint import Endpoint
from orchestrate.services.waits import answers_line, waits_in, waits_line
from tests.orchestrate.project import Project
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for

NOW = datetime(2026, 5, 1, 10, 1, tzinfo=UTC)
JUDGE = waits_line("judge", "http://gpu8:8000/v1", 60)
MODEL = waits_line("model", "http://gpu7:8000/v1", 300)
REFUSED = waits_line("model", "http://gpu7:8000/v1", 300, "connection refused: (nobody\nlistens)")
BEGUN = "waiting for the services"


def log(*said: str) -> list[str]:
    """What a job said, one line each ten seconds from ten o'clock on."""
    return [f"2026-05-01T10:00:{10 * n:02}+00:00 math/a: b shard 3 of 40: {text}" for n, text in enumerate(said)]


def test_what_a_job_says_of_a_wait_is_read_back_with_its_beginning() -> None:
    (wait,) = waits_in(log(BEGUN, MODEL, REFUSED), now=NOW)

    assert (wait.service, wait.address, wait.limit_s) == ("model", "http://gpu7:8000/v1", 300)
    assert (wait.since, wait.waited_s) == ("2026-05-01T10:00:10+00:00", 50)
    assert wait.reason == "connection refused: (nobody listens)"


@pytest.mark.parametrize(
    ("lines", "services"),
    [
        pytest.param(log(BEGUN), [], id="nothing-was-asked-yet"),
        pytest.param(log(BEGUN, MODEL, JUDGE), ["model", "judge"], id="two-services"),
        pytest.param(log(BEGUN, MODEL, JUDGE, answers_line("model")), ["judge"], id="one-of-two-answers"),
        pytest.param(log(BEGUN, MODEL, "collecting"), [], id="at-work"),
        pytest.param(log(BEGUN, MODEL, "asked to stop (terminated)"), [], id="asked-to-stop"),
        pytest.param([*log(BEGUN, MODEL), "slurmstepd: error: a word of Slurm"], ["model"], id="words-of-others-behind"),
        pytest.param([log(MODEL)[0][5:]], [], id="a-line-cut-in-the-middle"),
    ],
)
def test_a_wait_lasts_from_its_line_to_the_next_thing_that_the_job_does(lines: list[str], services: list[str]) -> None:
    assert [wait.service for wait in waits_in(lines, now=NOW)] == services


def test_a_job_that_was_killed_while_it_waited_and_begins_anew_waits_from_then_on() -> None:
    (wait,) = waits_in(log(BEGUN, MODEL, REFUSED, BEGUN, MODEL), now=NOW)

    assert (wait.since, wait.reason) == ("2026-05-01T10:00:40+00:00", "")


def test_a_reason_that_differs_each_time_is_said_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PROBE_PAUSE_S", 0)
    said: list[str] = []
    # A minute and a half of questions, three seconds apart.
    times, answers = iter(range(0, 999, 3)), iter([*(f"no answer after {n} ms" for n in range(30)), None])

    async def probe(name: str, endpoint: Endpoint, health_url: str | None) -> str | None:
        return next(answers)

    one = waiting.Waiting("model", Endpoint("http://gpu7:8000/v1", "m"), 300, said.append, clock=lambda: next(times))
    asyncio.run(one.until_ready(probe))

    assert said[:2] == [MODEL, f"{MODEL}: no answer after 0 ms"]
    assert said[-1] == answers_line("model")
    assert 5 <= len(said) <= 10
    assert one.reason == "no answer after 29 ms"


@pytest.fixture
def port() -> Iterator[int]:
    """A port that refuses for as long as the test does not listen there itself."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def waits(project: Project) -> list[list[dict[str, Any]]]:
    return [shard["waits"] for shard in project.status()["benchmarks"][0]["shards"]]


def test_status_tells_of_a_server_that_is_down_until_it_answers(tmp_path: Path, port: int) -> None:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    url = f"http://127.0.0.1:{port}/v1"
    project.config["services"] = {"policy": {"type": "external", "url": url, "served_model_name": "test-model"}}
    project.config["job"] |= {"pack": 2}
    project.benchmark("math", tasks=6, shards=3)
    project.submit()

    wait_for(lambda: all(found and found[0]["reason"] for found in waits(project)), 30, explain=project.logs)
    ((first, *_), *_) = waits(project)
    shown = project.gym("status").stdout

    assert (first["service"], first["address"], first["limit_s"]) == ("policy", url, 60)
    assert 0 <= first["waited_s"] < 60
    # One job fills two of the three shards.
    assert f"math: 2 jobs wait for service policy at {url}, " in shown
    assert " s so far, 60 s at most: " in shown
    assert shown.count("waits for service policy") == 3
    with ModelServer(tmp_path, port=port):
        said = project.submit("--wait")
    assert "0.6667 (6/6)" in said
    assert waits(project) == [[], [], []]
