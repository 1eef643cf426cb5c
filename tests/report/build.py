"""A run that has everything a report shows: preempted sessions, failures, hostile texts, shards at different stages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.formats.record import Attempt, record
from collector.outcomes import Completed, Delivery, Failure
from collector.preparation.prepare import prepare_shard
from collector.session import JobFacts, ShardSession
from collector.shard.lock import ShardLock
from tests.merge.build import Plan, answered, plan

BEGIN = datetime(2026, 1, 1, 8, tzinfo=UTC)
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\u202egnirts desrever\u202c \x1b[31m\x00"


def outcome_of(task: int, repeat: int) -> Completed | Failure | None:
    """Mostly answers; every ninth fails in one of two ways, and one never comes back."""
    if task % 9 == 4:
        return Failure(
            failure_class="agent_request_failed", kind="transport_timeout" if task % 2 else "provider_unavailable",
            reason=HOSTILE, response_body=HOSTILE * 9, terminal=True, http_status=503, delivery=Delivery.DELIVERED,
        )  # fmt: skip
    if task % 50 == 33:
        return None
    usage = {"input_tokens": 100 + task % 7, "output_tokens": 20 + (task * 37) % 400, "total_tokens": 0}
    return answered(float((task * 7 + repeat) % 3 > 0), text=HOSTILE, usage=usage)


def record_session(
    made: Plan, index: int, positions: Iterable[int], *, number: int, is_cut_off: bool, minutes: float = 50
) -> RunArtifacts:
    """One session on a shard that handles the rollouts at ``positions``, at times of its own choice."""
    artifacts = made.shards[index]
    if number == 0:
        artifacts.rollouts.parent.mkdir(parents=True, exist_ok=True)
        prepare_shard(artifacts, made.lines[index], made.manifest(index))
    before = artifacts.journal.stat().st_size
    with ShardLock(artifacts.lock) as lock:
        asyncio.run(_record(artifacts, lock, positions, is_cut_off=is_cut_off))
    _set_times(artifacts.journal, before, BEGIN + timedelta(minutes=number * (minutes + 15) + index * 2), minutes)
    return artifacts


async def _record(artifacts: RunArtifacts, lock: ShardLock, positions: Iterable[int], *, is_cut_off: bool) -> None:
    session = ShardSession.open(artifacts, lock, JobFacts("4711", 0), is_synced=False)
    inventory = session.store.inventory
    for index in positions:
        source = inventory.line(index)
        number = session.store.history.past(index).dispatched
        await session.dispatch(index, number)
        outcome = outcome_of(inventory.task(index), inventory.repeat(index))
        if outcome is not None:
            attempt = Attempt(
                index=index, number=number, rollout_id=inventory.rollout_id(index), run_id=session.run_id,
                session=session.number, source=source, row=jsonl.loads(source),
            )  # fmt: skip
            done = record(attempt, outcome, 2.0 + (index * 13) % 40 / 4 + (90 if index == 5 else 0))
            await session.settle(index, done.draft, done.line)
    await (session.abandon() if is_cut_off else session.end("final"))


def _set_times(journal: Path, offset: int, begin: datetime, minutes: float) -> None:
    data = journal.read_bytes()
    lines = data[offset:].splitlines()
    moved: list[bytes] = []
    for i, line in enumerate(lines):
        event = json.loads(line)
        event["at"] = (begin + timedelta(minutes=minutes * i / len(lines))).isoformat()
        moved.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
    journal.write_bytes(data[:offset] + b"".join(moved))


def make_run(directory: Path, *, shards: int = 6, tasks: int = 60, repeats: int = 4, name: str = "gsm8k") -> Plan:
    """A benchmark whose shards were preempted and are at different stages."""
    made = plan(directory / name, shards=shards, tasks=tasks, repeats=repeats, benchmark=name)
    for index, lines in enumerate(made.lines):
        half, most = len(lines) // 2, len(lines) - index * 3
        record_session(made, index, range(half), number=0, is_cut_off=index % 2 == 0)
        record_session(made, index, range(half, max(half, most)), number=1, is_cut_off=index % 3 == 2)
    return made
