"""The table of expected outcomes, numbers 45 to 48: what a bad reply is recorded as, and how often it is asked for again."""

from __future__ import annotations

import pytest

from tests.outcomes.bench import Bench
from tests.support.model_server import ModelServer

NO_ANSWER = "[[mode: {}]] never"


@pytest.mark.parametrize(
    ("mode", "failure_class", "status", "kind", "delivery", "tries"),
    [
        pytest.param("500", "agent_run_error", 500, "agent_run_error", "delivered", 1, id="n45-500"),
        pytest.param("503", "agent_request_failed", 503, "agent_request_failed", "delivered", 2, id="n46-503"),
        pytest.param("malformed", "agent_run_error", 200, "agent_run_error", "delivered", 1, id="n47-no-json"),
        pytest.param("drop", "agent_request_failed", None, "transport_peer_drop", "possibly_delivered", 1, id="n48-dropped"),
        pytest.param(
            "drop-before", "agent_request_failed", None, "transport_peer_drop", "possibly_delivered", 1, id="n48-no-byte"
        ),
        pytest.param("reset", "agent_request_failed", None, "transport_peer_drop", "possibly_delivered", 1, id="n48-reset"),
    ],
)
def test_a_bad_reply_is_a_bounded_failure_of_its_own_task(
    bench: Bench,
    model_server: ModelServer,
    mode: str,
    failure_class: str,
    status: int | None,
    kind: str,
    delivery: str,
    tries: int,
) -> None:
    """One of three tasks gets it on every try: three recorded attempts, an exact number of requests, two measured neighbours.

    Routing to the failures file cannot be switched off, so that no reply ever ends a run. A request is repeated inside an
    attempt only when it provably was not executed, which 503 says. The type of an unusable body is ``UnusableReply``, since
    JSON that is no completion is as unusable as what is no JSON; the reason has the parser's words.
    """
    bench.ask(model_server, "one", NO_ANSWER.format(mode), "three")

    coverage = bench.fill(retry={"max_tries": 2}).coverage

    assert (coverage.measured, coverage.states["exhausted"]) == (2, 1)
    assert model_server.counts() == {"0": 1, "1": 3 * tries, "2": 1}
    for saved in bench.failures():
        assert (saved["_ng_failure_class"], saved["_ng_failure_http_status"]) == (failure_class, status)
        assert (saved["failure_kind"], saved["_ng_failure_record"]["delivery"]) == (kind, delivery)
        assert saved["_ng_failure_type"] is not None
        assert not {"reward", "response"} & saved.keys()
