"""Answers and grades rows in memory, once each, for programs that keep the results themselves: nothing is read or written."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from collector import jsonl
from collector.agents.base import Agent, AgentSettings
from collector.errors import ConfigError, DatasetError, RequestError
from collector.formats import rows
from collector.formats.record import Attempt, record
from collector.loop.attempt import run_attempt
from collector.preparation.prepare import make_agent, make_verifier
from collector.settings import RunSettings
from collector.text.counted import agreeing, counted
from collector.verifiers.base import Verifier, VerifierSettings

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


async def run_outcomes(
    inputs: Sequence[Mapping[str, Any]], settings: RunSettings, *, run_id: str | None = None
) -> list[dict[str, Any]]:
    """The saved-row form of one attempt at each of ``inputs``, in their order; results and failures as files would have them.

    A row keeps its task and rollout index when all rows have them; otherwise its position is its task. Every returned row is
    the caller's own: nothing in it is shared with ``inputs``, which are never changed, or with another call. ``run_id`` is
    stamped on each row, and new unless given. At most ``num_samples_in_parallel`` attempts are in flight; paths, budgets and
    attempt caps of ``settings`` are not used. Raises ConfigError and DatasetError before anything is sent.
    """
    attempts = list(_attempts(inputs, settings, _checked_run_id(run_id)))
    results: list[dict[str, Any]] = [{} for _ in attempts]
    agent, verifier = make_agent(settings), make_verifier(settings)
    _check_rows(attempts, agent, verifier)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(agent)
        await stack.enter_async_context(verifier)
        waiting = iter(attempts)

        async def work() -> None:
            for attempt in waiting:
                results[attempt.index] = await _outcome(attempt, settings, agent, verifier)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(settings.num_samples_in_parallel, len(attempts))):
                group.create_task(work())
    return results


async def _outcome(
    attempt: Attempt, settings: RunSettings, agent: Agent[AgentSettings], verifier: Verifier[VerifierSettings]
) -> dict[str, Any]:
    begun = asyncio.get_running_loop().time()
    outcome = await run_attempt(attempt.row, agent, verifier, limit_s=settings.timeouts.attempt_s)
    elapsed_s = asyncio.get_running_loop().time() - begun
    line = record(attempt, outcome, elapsed_s).line
    return {**attempt.row, rows.NO_PERSIST: True} if line is None else jsonl.loads(line)


def _attempts(inputs: Sequence[Mapping[str, Any]], settings: RunSettings, run_id: str) -> Iterator[Attempt]:
    if settings.prompt_config is not None:
        raise ConfigError("prompt_config: is not used for rows in memory.", "Give each row its responses_create_params.input.")
    has_identity = _has_identity(inputs)
    seen: set[str] = set()
    for position, given in enumerate(inputs):
        line = _line(given, position, settings, has_identity=has_identity)
        rollout_id = rows.parse_stamp(line).rollout_id
        if rollout_id in seen:
            raise DatasetError(f"rollout {rollout_id!r} occurs twice.", "Give each row indices of its own.", f"row {position}")
        seen.add(rollout_id)
        # Parsed from its own bytes, so that nothing of the caller's row can be reached from it.
        row = jsonl.loads(line)
        yield Attempt(index=position, number=0, rollout_id=rollout_id, run_id=run_id, session=0, source=line, row=row)


def _has_identity(inputs: Sequence[Mapping[str, Any]]) -> bool:
    with_both = sum(rows.TASK_INDEX in row and rows.ROLLOUT_INDEX in row for row in inputs)
    with_any = sum(rows.TASK_INDEX in row or rows.ROLLOUT_INDEX in row for row in inputs)
    if with_any and with_both != len(inputs):
        told = f"{counted(with_both, 'row', of=len(inputs))} {agreeing(with_both, 'have')} both"
        what = f"{told} {rows.TASK_INDEX} and {rows.ROLLOUT_INDEX}."
        raise DatasetError(what, "Give them to all rows, or to none.")
    return with_both > 0


def _line(given: Mapping[str, Any], position: int, settings: RunSettings, *, has_identity: bool) -> bytes:
    where = f"row {position}"
    params = given.get("responses_create_params")
    if not isinstance(params, Mapping) or "input" not in {**params, **settings.responses_create_params}:
        raise DatasetError("no responses_create_params.input.", "Give the row one.", where)
    row = {**given, "responses_create_params": {**params, **settings.responses_create_params}}
    task, repeat = (given[rows.TASK_INDEX], given[rows.ROLLOUT_INDEX]) if has_identity else (position, 0)
    try:
        line = rows.inventory_line(row, task, repeat)
        rows.parse_stamp(line)
    except (TypeError, ValueError) as error:
        raise DatasetError(
            f"the row cannot be used: {error}.", "It has to be JSON with whole numbers as indices.", where
        ) from error
    return line


def _check_rows(attempts: Sequence[Attempt], agent: Agent[AgentSettings], verifier: Verifier[VerifierSettings]) -> None:
    for attempt in attempts:
        try:
            agent.check_row(attempt.row)
            verifier.check_row(attempt.row)
        except ValueError as error:
            cure = "Change the row, the agent or the verifier."
            raise DatasetError(f"{error}.", cure, f"row {attempt.index}") from error


def _checked_run_id(run_id: str | None) -> str:
    if run_id is None:
        return uuid.uuid4().hex
    if _RUN_ID.fullmatch(run_id) is None:
        raise RequestError(f"{run_id!r} is no run id.", "Use letters, digits, dots, dashes and underscores.")
    return run_id
