"""The deterministic model server: its counts are facts, also after it or its client was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from tests.support.model_server import ModelServer


def ask(server: ModelServer, prompt: str) -> int:
    """The status of one chat request; 0 when the connection ended without an answer."""
    request = urllib.request.Request(f"{server.base_url}/chat/completions", json.dumps({"messages": prompt}).encode())
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_requests_are_counted_by_the_task_mark_or_the_prompt(model_server: ModelServer) -> None:
    for prompt in ("[[task: a]] x", "[[task: a]] y", "no mark", "no mark"):
        ask(model_server, prompt)

    assert model_server.counts()["a"] == 2
    assert sorted(model_server.counts().values()) == [2, 2]


def test_the_log_and_the_counters_agree(model_server: ModelServer) -> None:
    for prompt in ("[[task: a]]", "[[task: b]]", "[[task: a]] [[mode: 500]]"):
        ask(model_server, prompt)

    assert model_server.stats()["by_task"] == model_server.counts() == Counter(a=2, b=1)
    assert [(line["n"], line["nth"], line["mode"]) for line in model_server.requests()] == [
        (1, 1, "ok"),
        (2, 1, "ok"),
        (3, 2, "500"),
    ]


def test_a_request_that_was_never_answered_is_in_the_log_of_a_killed_server(model_server: ModelServer) -> None:
    thread = threading.Thread(target=ask, args=(model_server, "[[task: lost]] [[mode: silence]]"))
    thread.start()
    while model_server.stats()["in_flight"] == 0:
        time.sleep(0.02)
    model_server.kill()
    thread.join()

    assert model_server.counts() == Counter(lost=1)


def test_a_restarted_server_keeps_its_port_and_goes_on_counting(model_server: ModelServer) -> None:
    port = model_server.port
    first = ask(model_server, "[[task: a]] [[mode: 500 x2]]")
    model_server.kill()
    model_server.start()
    later = [ask(model_server, "[[task: a]] [[mode: 500 x2]]") for _ in range(2)]

    assert model_server.port == port
    assert (first, later) == (500, [500, 200])
    assert model_server.counts() == Counter(a=3)


def test_a_server_that_dies_at_a_request_says_its_last_words(tmp_path: Path) -> None:
    with ModelServer(tmp_path, exit_after=2, exit_code=9, last_words="CUDA is gone") as server:
        statuses = [ask(server, "one"), ask(server, "two")]
        code = server.wait()

    assert statuses == [200, 0]
    assert code == 9
    assert server.output.read_text(encoding="utf-8").splitlines()[-1] == "CUDA is gone"


def test_the_server_can_kill_a_client_at_an_exact_request(tmp_path: Path) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    pid_file = tmp_path / "pid"
    pid_file.write_text(str(victim.pid), encoding="ascii")
    with ModelServer(tmp_path, kill_pid_at=2, kill_pid_file=pid_file) as server:
        ask(server, "one")
        alive_after_one = victim.poll() is None
        ask(server, "two")

    assert alive_after_one
    assert victim.wait(5) == -signal.SIGKILL


def test_the_highest_number_of_requests_at_once_is_known(model_server: ModelServer) -> None:
    threads = [threading.Thread(target=ask, args=(model_server, f"[[delay: 0.3]] {i}")) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    stats = model_server.stats()
    assert (stats["max_in_flight"], stats["in_flight"]) == (4, 0)


def test_an_unknown_mode_stops_the_server_at_its_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        ModelServer(tmp_path, mode="tired").start()
