"""Faults of endpoints and graders, as people met them in batch evaluations: each ends, is named, and costs its own task only."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.errors import UnavailableError
from tests.outcomes.bench import Bench
from tests.support.model_server import ModelServer


@pytest.fixture
def nowhere(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an endpoint that nobody answers at."""
    if request.param == "no-such-host":
        yield "http://no-such-host.invalid/v1"
        return
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        if request.param == "silent-network":
            # With its queue of new connections full, the kernel drops whoever comes next, as a firewall does.
            listener.listen(0)
            for _ in range(3):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


@pytest.mark.parametrize("nowhere", ["closed-port", "no-such-host", "silent-network"], indirect=True)
def test_c1_an_endpoint_nobody_answers_at_is_given_up_within_its_limits_and_said_at_once(bench: Bench, nowhere: str) -> None:
    """Retried without end and without a word: here an attempt is max_tries connects of connect_s, and stderr speaks at once."""
    bench.ask(nowhere, "one", "two")
    begun = time.monotonic()

    done = bench.run(timeouts={"connect_s": 0.3}, retry={"max_tries": 2, "max_attempts": 2}, num_samples_in_parallel=2)

    assert time.monotonic() - begun < 20
    assert done.returncode in {5, 7}
    assert "trying again" in done.stderr
    saved = bench.failures()
    assert 2 <= len(saved) <= 4
    assert {(row["failure_kind"], row["_ng_failure_record"]["delivery"]) for row in saved} == {
        ("transport_unreachable", "not_sent")
    }
    assert not bench.rows()


def test_c1_a_server_that_drops_one_task_costs_that_task_only(bench: Bench, model_server: ModelServer) -> None:
    """A socket dropped in the middle of a body: one request an attempt, a recorded failure, and the others go on."""
    bench.ask(model_server, "[[mode: drop]] x", "two", "three")

    coverage = bench.fill().coverage

    assert model_server.counts() == {"0": 3, "1": 1, "2": 1}
    assert (coverage.measured, coverage.failures_by_kind) == (2, {"transport_peer_drop": 1})


@pytest.mark.parametrize("key", ["connect_s", "request_s", "stall_s"])
@pytest.mark.parametrize("value", [None, 0, -1, "", "soon", True, float("inf")])
def test_c2_no_wait_can_be_set_to_for_ever(bench: Bench, key: str, value: object) -> None:
    """Null, zero, negative, empty and infinite limits are refused by name before anything starts."""
    with pytest.raises(ValidationError, match=key):
        bench.settings(timeouts={key: value})


def test_c2_a_number_written_as_text_is_that_number(bench: Bench) -> None:
    """``"60"`` from a quoted YAML value means 60 seconds, not no limit."""
    assert bench.settings(timeouts={"request_s": "60"}).timeouts.request_s == 60.0


def test_c2_a_server_that_accepts_and_says_nothing_is_noticed_by_its_silence(bench: Bench, model_server: ModelServer) -> None:
    """The connect succeeded and not a byte follows: the stall limit ends it, long before the limit of the whole request."""
    bench.ask(model_server, "[[mode: silence]] x", "two")
    begun = time.monotonic()

    coverage = bench.fill(timeouts={"stall_s": 0.4, "request_s": 600}, retry={"max_attempts": 1}).coverage

    assert time.monotonic() - begun < 10
    assert (coverage.measured, coverage.failures_by_kind) == (1, {"transport_timeout": 1})


def test_c4_every_request_that_was_asked_for_is_in_flight_at_once(bench: Bench, tmp_path: Path) -> None:
    """No hidden pool below the concurrency: 300 requests reach a slow server together."""
    with ModelServer(tmp_path, delay=1.5) as server:
        bench.ask(server, *["x"] * 300)

        coverage = bench.fill(num_samples_in_parallel=300, durability="flush").coverage

        assert (server.stats()["max_in_flight"], coverage.measured) == (300, 300)


def test_c4_waiting_for_a_slot_is_no_part_of_a_request(bench: Bench, tmp_path: Path) -> None:
    """Twenty tasks, two at a time, half a second each, and a limit of four seconds: nobody times out in the queue, or retries."""
    with ModelServer(tmp_path, delay=0.5) as server:
        bench.ask(server, *["x"] * 20)

        coverage = bench.fill(num_samples_in_parallel=2, timeouts={"request_s": 4.0, "stall_s": 4.0}).coverage

        assert (coverage.measured, coverage.attempts, server.stats()["max_in_flight"]) == (20, 20, 2)
    assert all(event["elapsed_s"] < 4.0 for event in bench.events("success"))


def test_c8_one_broken_task_of_each_sort_ends_nothing_but_itself(bench: Bench, model_server: ModelServer) -> None:
    """A 500, a dead judge, half a JSON body and a bug in the grader among ten tasks: six scores, four named failures, exit 6."""
    prompts = ["x"] * 10
    prompts[3], prompts[7] = "[[mode: 500]] x", "[[mode: malformed]] x"
    bench.ask(model_server, *prompts, fields={5: {"judge": "down"}, 9: {"judge": "bug"}})

    done = bench.run(num_samples_in_parallel=4)

    assert done.returncode == 6
    kinds = {(row["n"], row["_ng_failure_class"], row["failure_kind"]) for row in bench.failures()}
    assert kinds == {
        (3, "agent_run_error", "agent_run_error"),
        (5, "judge_failed", "judge_failed"),
        (7, "agent_run_error", "agent_run_error"),
        (9, "agent_run_error", "verifier_error"),
    }
    assert sorted(row["n"] for row in bench.rows()) == [0, 1, 2, 4, 6, 8]
    judged = next(row for row in bench.failures() if row["n"] == 5)
    assert (judged["response"]["object"], "reward" in judged) == ("response", False)
    assert "1 (6/10, bounds 0.6 to 1)" in done.stdout


@pytest.mark.parametrize("judge", ["down", "bug"])
def test_c10_a_grader_that_rejects_everything_stops_the_run_in_its_own_words(bench: Bench, judge: str) -> None:
    """Every answer is rejected at once: the run stops after a bounded number of requests and shows what the grader said."""
    bench.tasks(*[{"judge": judge}] * 300)

    with pytest.raises(UnavailableError, match=r"in a row failed alike: .*(HTTP 500 from the judge|a bug of the verifier)"):
        bench.fill(num_samples_in_parallel=4)

    assert max(bench.asked().values()) <= 3
    assert sum(bench.asked().values()) < 100
    assert bench.states()["never_dispatched"] > 200


def test_c10_one_rejected_task_is_tried_exactly_to_its_cap(bench: Bench) -> None:
    """Rejected within microseconds each time: the cap counts attempts of this task, not time, and the rest is measured."""
    bench.tasks({"judge": "bug"}, *[{}] * 5)

    coverage = bench.fill(retry={"max_attempts": 7, "backoff_s": 0.0001, "backoff_max_s": 0.0001}).coverage

    assert bench.asked() == {"0-0": 7, **{f"{n}-0": 1 for n in range(1, 6)}}
    assert (coverage.measured, coverage.is_final) == (5, True)


def test_c11_an_answer_cut_by_the_token_limit_is_counted_and_an_empty_one_is_no_zero(
    bench: Bench, model_server: ModelServer
) -> None:
    """Cut text is graded and counted as truncated; cut before the first word is masked; a full stop at the cap is neither."""
    fields = {0: {"grade": 0}, 1: {"grade": 0}, 2: {"grade": 1}}
    bench.ask(model_server, "[[mode: length]] x", "[[mode: length-empty]] x", "[[answer: one two three]] x", fields=fields)

    coverage = bench.fill(responses_create_params={"max_output_tokens": 3}).coverage

    assert (coverage.measured, coverage.states["masked"], coverage.truncated, coverage.mean) == (2, 1, 2, 0.5)
    empty = next(row for row in bench.rows() if row["n"] == 1)
    assert (empty["mask_sample"], "reward" in empty) == (True, False)
    details = {row["n"]: row["response"]["incomplete_details"] for row in bench.rows()}
    assert details == {0: {"reason": "max_output_tokens"}, 1: {"reason": "max_output_tokens"}, 2: None}


BODIES = {
    "nan": b'{"choices":[{"message":{"content":"4"},"finish_reason":"stop","logprobs":NaN}]}',
    "infinity": b'{"choices":[{"message":{"content":"4"},"finish_reason":"stop"}],"usage":-Infinity}',
    "not-utf-8": b'{"choices":[{"message":{"content":"\xff\xfe"},"finish_reason":"stop"}]}',
    "empty": b"",
    "html": b"<html>504 Gateway Time-out</html>",
}


@pytest.fixture
def raw_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that answers every request with one body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(request.param)))
            self.end_headers()
            self.wfile.write(request.param)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("raw_server", [pytest.param(body, id=name) for name, body in BODIES.items()], indirect=True)
def test_d6_a_reply_that_is_not_strict_json_is_a_failure_with_its_evidence(bench: Bench, raw_server: str) -> None:
    """A bare NaN in a body is no null, and a page of HTML no answer: an unusable reply, quoted in the failure."""
    bench.ask(raw_server, "x")

    coverage = bench.fill(retry={"max_attempts": 1}).coverage

    (failure,) = bench.failures()
    assert coverage.states["exhausted"] == 1
    assert failure["failure_reason"].startswith("unusable reply: ")
    assert failure["_ng_failure_http_status"] == 200
