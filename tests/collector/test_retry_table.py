"""docs/retry-table.md says what the code does: every row of it is met by a real agent, and read from the same file."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from collector.loop.attempt import run_attempt
from collector.outcomes import Answer, Completed, Failure, RolloutState, Verdict
from collector.preparation.prepare import make_agent
from collector.settings import RetrySettings, RunSettings, Timeouts
from collector.state.codes import Past
from collector.state.retry import may_dispatch
from collector.verifiers.base import Verifier, VerifierSettings
from tests.agents.sockets import Peer, Wire, peer, reply

TABLE = Path(__file__).parents[2] / "docs" / "retry-table.md"
MESSAGE = {"role": "assistant", "content": "4"}
PATIENT = Timeouts(connect_s=0.3, stall_s=20, request_s=20, attempt_s=20)
SCRIPT = Callable[[Wire], Awaitable[None]]


@dataclass(frozen=True)
class TableRow:
    """One line of the table, its cells without backquotes."""

    situation: str
    inside: str
    recorded: str
    terminal: str
    bounds: tuple[str, ...]


def table() -> list[TableRow]:
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in line.replace("`", "").strip("|").split("|")] for line in lines]
    return [
        TableRow(situation, inside, recorded, terminal, tuple(filter(None, bounds.split(", "))))
        for situation, inside, recorded, terminal, bounds in cells
    ]


class Grader(Verifier[VerifierSettings]):
    """Grades everything with 1, or raises."""

    Settings = VerifierSettings
    raises = False

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        if self.raises:
            raise ZeroDivisionError("a bug of the verifier")
        return Verdict(reward=1.0)


@dataclass(frozen=True)
class Situation:
    """What the other side does, or an address where nobody speaks; what it does after a request is its script."""

    script: SCRIPT | None = None
    url: str | None = None
    timeouts: Timeouts = PATIENT
    grader_raises: bool = False


async def never(wire: Wire) -> None:
    await wire.request()
    await asyncio.sleep(60)


async def drips(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        await wire.send(b"{")
        await asyncio.sleep(0.05)


async def drops(wire: Wire) -> None:
    await wire.request()


async def drops_inside(wire: Wire) -> None:
    await wire.request()
    await wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"choices"')


def says(status: str, body: bytes = b'{"error": {"message": "no"}}', headers: str = "") -> SCRIPT:
    async def script(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.send(reply(body, status, headers))

    return script


def completes(**choice: Any) -> bytes:
    return orjson.dumps({"choices": [{"message": MESSAGE, "finish_reason": "stop", **choice}]})


OVERFLOW = b'{"error": {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}}'
SITUATIONS: dict[str, Situation] = {
    "connection refused": Situation(url="http://127.0.0.1:{closed}/v1"),
    "name not resolved": Situation(url="http://model.invalid/v1"),
    "connection never opens": Situation(url="http://127.0.0.1:{full}/v1"),
    "no byte comes": Situation(never, timeouts=Timeouts(stall_s=1)),
    "bytes come too slowly": Situation(drips, timeouts=Timeouts(request_s=0.5)),
    "peer drops the connection before a reply": Situation(drops),
    "peer drops the connection inside a reply": Situation(drops_inside),
    "400, context overflow": Situation(says("400 Bad Request", OVERFLOW)),
    "429 with Retry-After": Situation(says("429 Too Many Requests", headers="Retry-After: 1\r\n")),
    "200 with a malformed body": Situation(says("200 OK", b'{"choices": [')),
    "200, cut at the token limit": Situation(says("200 OK", completes(finish_reason="length"))),
    "the verifier raises": Situation(says("200 OK", completes()), grader_raises=True),
    "the attempt takes too long": Situation(never, timeouts=Timeouts(attempt_s=0.5)),
    **{
        status: Situation(says(f"{status} Whatever"))
        for status in ("400", "401", "403", "404", "413", "422", "429", "500", "502", "503", "504")
    },
}


@pytest.fixture
def ports() -> Iterator[dict[str, int]]:
    """A port where nobody listens, and one whose queue is full: the kernel drops further connections."""
    with contextlib.ExitStack() as held:
        full, closed = (held.enter_context(socket.socket()) for _ in range(2))
        for listener in (full, closed):
            listener.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(8):
            pending = held.enter_context(socket.socket())
            pending.setblocking(False)
            pending.connect_ex(full.getsockname())
        yield {"full": full.getsockname()[1], "closed": closed.getsockname()[1]}


RETRY = RetrySettings(max_tries=2, max_attempts=2, backoff_s=0.01, backoff_max_s=0.02)


async def attempt(situation: Situation, url: str, retry: RetrySettings) -> Completed | Failure:
    row = {"responses_create_params": {"input": "2 + 2?"}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    settings = RunSettings(
        input_jsonl_fpath=Path("tasks.jsonl"), output_jsonl_fpath=Path("rollouts.jsonl"), verifier={"type": "number"},
        policy_base_url=url, policy_model_name="m", retry=retry, timeouts=situation.timeouts,
    )  # fmt: skip
    grader = Grader(VerifierSettings(type="grader"))
    grader.raises = situation.grader_raises
    async with make_agent(settings) as agent:
        return await run_attempt(row, agent, grader, limit_s=situation.timeouts.attempt_s)


def meet(situation: Situation, ports: dict[str, int], retry: RetrySettings = RETRY) -> tuple[Completed | Failure, Peer]:
    async def scenario() -> tuple[Completed | Failure, Peer]:
        if situation.url is not None:
            return await attempt(situation, situation.url.format(**ports), retry), Peer()
        async with peer(situation.script or never) as seen:
            return await attempt(situation, seen.url, retry), seen

    return uvloop.run(scenario())


def test_the_table_and_the_situations_tried_here_are_the_same() -> None:
    assert [row.situation for row in table()] == sorted(SITUATIONS, key=[row.situation for row in table()].index)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.situation) for row in table()])
def test_every_row_of_the_table_is_what_happens(row: TableRow, ports: dict[str, int]) -> None:
    outcome, seen = meet(SITUATIONS[row.situation], ports)

    if isinstance(outcome, Completed):
        assert (row.inside, row.recorded, row.terminal) == ("completes it", "a result, counted as truncated", "")
        assert outcome.answer.truncated
        return
    assert f"{outcome.failure_class} / {outcome.kind}" == row.recorded
    assert outcome.terminal is (row.terminal == "yes")
    assert outcome.reason.endswith("after 2 tries") is row.inside.startswith("repeated")
    if seen.requests:
        assert len(seen.requests) == (2 if row.inside.startswith("repeated") else 1)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.situation) for row in table() if row.terminal])
def test_another_attempt_follows_exactly_where_the_failure_is_not_terminal(row: TableRow) -> None:
    past = Past(state=RolloutState.FAILED, dispatched=1, recorded=1, terminal=row.terminal == "yes")
    spent = replace(past, dispatched=2, recorded=2)

    assert may_dispatch(past, RETRY) is (row.terminal == "no")
    assert not may_dispatch(spent, RETRY)


def test_a_wait_that_the_server_asks_for_is_kept(ports: dict[str, int]) -> None:
    async def timed() -> float:
        begun = asyncio.get_running_loop().time()
        async with peer(says("429 Too Many Requests", headers="Retry-After: 1\r\n")) as seen:
            await attempt(Situation(), seen.url, RETRY)
        return asyncio.get_running_loop().time() - begun

    assert uvloop.run(timed()) >= 1


@pytest.mark.parametrize("row", [pytest.param(row, id=row.situation) for row in table() if "retry.max_tries" in row.bounds])
def test_the_deadline_ends_the_tries_that_the_count_would_still_allow(row: TableRow, ports: dict[str, int]) -> None:
    retry = RetrySettings(max_tries=1000, backoff_s=0.1, backoff_max_s=0.1, retry_deadline_s=0.5)
    situation = replace(SITUATIONS[row.situation], timeouts=Timeouts(connect_s=0.1, attempt_s=20))

    outcome, _ = meet(situation, ports, retry)

    assert isinstance(outcome, Failure)
    assert 1 < int(outcome.reason.rpartition("after ")[2].split()[0]) < 20


def test_every_limit_that_the_table_names_is_a_setting_that_cannot_be_null() -> None:
    named = {name for row in table() for name in row.bounds}

    for name in sorted(named):
        section, _, key = name.partition(".")
        model = {"retry": RetrySettings, "timeouts": Timeouts}[section]
        assert isinstance(model.model_fields[key].get_default(), int | float), name
        with pytest.raises(ValueError, match=key):
            model.model_validate({key: None})
