"""Shards made by the collector's own preparation and session, with outcomes of the test's choice; no network."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.formats import rows
from collector.formats.events import OmittedEvent
from collector.formats.inventory import digest_of_lines
from collector.formats.manifest import Manifest, ShardPlace, digest_of
from collector.formats.record import Attempt, record
from collector.outcomes import Answer, Completed, Failure, Omitted, Verdict
from collector.preparation.prepare import prepare_shard
from collector.session import JobFacts, ShardSession
from collector.shard.lock import ShardLock

Outcome: TypeAlias = Completed | Failure | Omitted | None
CONFIG: dict[str, Any] = {"agent": {"type": "openai_chat"}, "verifier": {"type": "exact_match"}, "policy_model_name": "m"}


def answered(
    reward: float | None = 1.0,
    *,
    masked: bool = False,
    text: str = "four",
    usage: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    response: Mapping[str, Any] | None = None,
) -> Completed:
    """A completed attempt with a small Responses object, or with ``response``."""
    whole = response or {
        "id": "resp_1",
        "object": "response",
        "model": "m",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        "usage": usage or {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
    }
    verdict = Verdict(reward=reward, masked=masked, extra=dict(extra or {}))
    return Completed(answer=Answer(response=dict(whole), text=text), verdict=verdict)


def failed(*, terminal: bool = True) -> Failure:
    """A failed attempt; terminal, so that its rollout is final, unless said otherwise."""
    return Failure(failure_class="agent_request_failed", reason="connection refused", terminal=terminal)


@dataclass(frozen=True)
class Plan:
    """A benchmark's inventory, split over shards."""

    directory: Path
    lines: list[list[bytes]]
    run_id: str
    benchmark: str
    config: dict[str, Any]

    @property
    def shards(self) -> list[RunArtifacts]:
        count = len(self.lines)
        return [RunArtifacts(self.directory / "shards" / f"{i}-of-{count}" / "rollouts.jsonl") for i in range(count)]

    @property
    def merged(self) -> RunArtifacts:
        return RunArtifacts(self.directory / "rollouts.jsonl")

    def manifest(self, index: int) -> Manifest:
        whole = [line for part in self.lines for line in part]
        place = ShardPlace(index=index, count=len(self.lines), whole_digest=digest_of_lines(whole), whole_expected=len(whole))
        return Manifest(
            run_id=self.run_id,
            benchmark=self.benchmark,
            created_at="2026-01-01T00:00:00+00:00",
            expected=len(self.lines[index]),
            source_digest="5" * 64,
            inventory_digest=digest_of_lines(self.lines[index]),
            config_digest=digest_of(self.config),
            config=self.config,
            shard=place,
        )


def plan(
    directory: Path,
    *,
    shards: int = 2,
    tasks: int = 4,
    repeats: int = 1,
    run_id: str | None = None,
    benchmark: str = "bench",
    config: dict[str, Any] | None = None,
    row: Mapping[str, Any] | None = None,
    round_robin: bool = False,
) -> Plan:
    """``tasks`` times ``repeats`` rollouts, split by task in contiguous parts or in turn."""
    body = {"responses_create_params": {"input": [{"role": "user", "content": "2+2?"}]}, **(row or {})}
    parts: list[list[bytes]] = [[] for _ in range(shards)]
    for task in range(tasks):
        part = task % shards if round_robin else task * shards // tasks
        parts[part].extend(rows.inventory_line(body, task, repeat) for repeat in range(repeats))
    return Plan(directory, parts, run_id or uuid.uuid4().hex, benchmark, config or CONFIG)


def fill(
    plan: Plan, index: int, outcome_of: Callable[[int, int], Outcome | Sequence[Outcome]], *, order: int = 1, end: bool = True
) -> RunArtifacts:
    """Prepare shard ``index`` and record the outcomes of each (task, repeat); None: dispatched and interrupted."""
    artifacts = plan.shards[index]
    artifacts.rollouts.parent.mkdir(parents=True, exist_ok=True)
    with ShardLock(artifacts.lock) as lock:
        prepare_shard(artifacts, plan.lines[index], plan.manifest(index))
        asyncio.run(_record(artifacts, lock, outcome_of, order=order, end=end))
    return artifacts


def fill_all(
    plan: Plan, outcome_of: Callable[[int, int], Outcome | Sequence[Outcome]], *, order: int = 1
) -> list[RunArtifacts]:
    """``fill`` for every shard."""
    return [fill(plan, index, outcome_of, order=order) for index in range(len(plan.lines))]


def prepare_only(plan: Plan, index: int) -> RunArtifacts:
    """A shard whose collector has not begun."""
    prepare_shard(plan.shards[index], plan.lines[index], plan.manifest(index))
    return plan.shards[index]


async def _record(
    artifacts: RunArtifacts,
    lock: ShardLock,
    outcome_of: Callable[[int, int], Outcome | Sequence[Outcome]],
    *,
    order: int,
    end: bool,
) -> None:
    session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
    inventory = session.store.inventory
    # All at once, as a collector at work does: their rows share writes.
    await asyncio.gather(*(_one(session, i, outcome_of) for i in range(len(inventory))[::order]))
    await (session.end("final") if end else session.abandon())


async def _one(session: ShardSession, index: int, outcome_of: Callable[[int, int], Outcome | Sequence[Outcome]]) -> None:
    inventory = session.store.inventory
    found = outcome_of(inventory.task(index), inventory.repeat(index))
    for outcome in found if isinstance(found, Sequence) else [found]:
        number = session.store.history.past(index).dispatched
        await session.dispatch(index, number)
        source = inventory.line(index)
        rollout_id = inventory.rollout_id(index)
        if isinstance(outcome, Omitted):
            draft = OmittedEvent(
                run_id=session.run_id, session=session.number, seq=-1, at="", rollout_id=rollout_id,
                attempt_index=number, reason=outcome.reason,
            )  # fmt: skip
            await session.settle(index, draft, None)
        elif outcome is not None:
            attempt = Attempt(
                index=index, number=number, rollout_id=rollout_id, run_id=session.run_id, session=session.number,
                source=source, row=jsonl.loads(source),
            )  # fmt: skip
            made = record(attempt, outcome, 0.5)
            await session.settle(index, made.draft, made.line)
