"""Runs to grade again, for tests: histories written attempt by attempt, and regradings of them in this process."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from collector.artifacts import RunArtifacts
from collector.collect import CollectResult
from collector.formats import events
from collector.formats.record import Attempt, record
from collector.formats.rows import parse_stamp
from collector.outcomes import Answer, Completed, Failure, FailureClass, FailureKind, Stage, Verdict
from collector.preparation.materialize import materialize
from collector.preparation.prepare import make_verifier, new_manifest, prepare_shard, validate_rows
from collector.reverify.append import Judged, judge_again
from collector.reverify.settings import ReverifySettings
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings
from collector.shard.lock import ShardLock
from collector.stop import StopRequest
from orchestrate.masked_config import publish_config
from orchestrate.regrading import find_source, regrade_here, settings_for
from tests.collector.shards import rows_of
from tests.merge.build import Plan, answered, failed, fill_all, plan

#: What an attempt comes to: an interruption, a judge's failure with the answer ``A`` or without one, the agent's, a result.
HISTORY = {
    "?": None,
    "jf(A)": Failure(failure_class="judge_failed", kind="judge_failed", reason="judge down", stage=Stage.VERIFICATION),
    "ji(A)": Failure(failure_class="judge_invalid", kind="judge_unparseable", reason="no verdict", stage=Stage.VERIFICATION),
    "jf": Failure(failure_class="judge_failed", kind="judge_failed", reason="judge down", stage=Stage.VERIFICATION),
    "jf(A)!": Failure(failure_class="judge_failed", kind="judge_failed", reason="gone for good", terminal=True),
    "agent": Failure(failure_class=FailureClass.AGENT_RUN_ERROR, kind=FailureKind.AGENT_RUN_ERROR, reason="tool broke"),
}


class Quiet:
    """Progress that nobody looks at."""

    def started(self, session: object) -> None:
        """A session was opened."""

    def changed(self) -> None:
        """An outcome was recorded."""


def response_of(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [message]}


def prepared(settings: RunSettings) -> RunArtifacts:
    """The run that ``settings`` describe, with nothing recorded."""
    made = materialize(settings)
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    targets = validate_rows(settings, made)
    manifest = new_manifest(settings, made, benchmark="test", targets=targets)
    prepare_shard(artifacts, made, manifest)
    publish_config(artifacts, settings)
    return artifacts


def write_history(artifacts: RunArtifacts, index: int, attempts: Sequence[str]) -> None:
    """Record ``attempts`` of rollout ``index``, each in a session of its own that is then killed.

    ``late:jf(A)`` is what the session of attempt 0 writes when its time is long over.
    """
    for attempt in attempts:
        if attempt.startswith("late:"):
            _write_late(artifacts, index, attempt.removeprefix("late:"))
        else:
            asyncio.run(_one_session(artifacts, index, attempt))


async def _one_session(artifacts: RunArtifacts, index: int, said: str) -> None:
    with ShardLock(artifacts.lock) as lock:
        session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
        try:
            await one_attempt(session, index, said)
        finally:
            await session.abandon()


async def one_attempt(session: ShardSession, index: int, said: str) -> None:
    """Record the next attempt of rollout ``index``, and what it came to."""
    number = session.store.history.latest[index] + 1
    await session.dispatch(index, number)
    if said != "?":
        attempt = _attempt(session.store.inventory.line(index), index, number, session.run_id, session.number)
        recorded = record(attempt, _outcome(said), 0.5)
        await session.settle(index, recorded.draft, recorded.line)


def _write_late(artifacts: RunArtifacts, index: int, said: str) -> None:
    """A row and its event of session 0, after newer sessions began."""
    found = [events.parse(line) for line in artifacts.journal.read_bytes().splitlines()]
    lines = artifacts.inventory.read_bytes().splitlines(keepends=True)
    recorded = record(_attempt(lines[index], index, 0, found[0].run_id, 0), _outcome(said), 0.5)
    offset = artifacts.failures.stat().st_size
    assert recorded.line is not None
    with artifacts.failures.open("ab") as file:
        file.write(recorded.line)
    place = {"offset": offset, "length": len(recorded.line), "checksum": zlib.crc32(recorded.line)}
    draft: dict[str, Any] = orjson.loads(events.encode(recorded.draft))
    late = {**draft, **place, "seq": sum(event.session == 0 for event in found), "at": "late"}
    with artifacts.journal.open("ab") as file:
        file.write(orjson.dumps(late) + b"\n")


def _attempt(line: bytes, index: int, number: int, run_id: str, session: int) -> Attempt:
    stamp = parse_stamp(line)
    return Attempt(
        index=index, number=number, rollout_id=stamp.rollout_id, run_id=run_id, session=session, source=line,
        row=orjson.loads(line),
    )  # fmt: skip


def _outcome(said: str) -> Completed | Failure:
    if said.startswith("ok"):
        extra = {"invalid_judge_response": True} if said.endswith("flagged") else {}
        return Completed(answer=Answer(response=response_of("fresh"), text="fresh"), verdict=Verdict(reward=0.0, extra=extra))
    failure = HISTORY[said]
    assert failure is not None
    return replace(failure, response=response_of("A")) if "(A)" in said else failure


def append(settings: RunSettings, **changes: Any) -> tuple[Judged, list[str]]:
    """``--judge-failed-only --append`` on the run of ``settings``: what came of it, and what was warned of."""
    wanted = ReverifySettings.model_validate(
        {
            "rollouts_jsonl_fpath": settings.output_jsonl_fpath,
            "judge_failed_only": True,
            "append": True,
            "num_samples_in_parallel": 1,
            **changes,
        }
    )
    warned: list[str] = []

    async def run() -> Judged:
        source = find_source(wanted)
        made = settings_for(wanted, source, source.runs[0].rollouts)
        verifier = make_verifier(made)
        return await judge_again(
            source.runs[0], wanted, made, verifier, stop=StopRequest(), warn=warned.append, progress=Quiet()
        )

    return asyncio.run(run()), warned


def regrade(rollouts: Path, output: Path, **changes: Any) -> tuple[CollectResult, list[str]]:
    """``gym eval reverify`` of ``rollouts`` into ``output``: what came of it, and what was warned of."""
    retry = {"backoff_s": 0.001, "backoff_max_s": 0.002, **changes.pop("retry", {})}
    wanted = ReverifySettings.model_validate(
        {
            "rollouts_jsonl_fpath": rollouts,
            "output_jsonl_fpath": output,
            "num_samples_in_parallel": 1,
            "retry": retry,
            **changes,
        }
    )
    warned: list[str] = []

    async def run() -> CollectResult:
        result, _ = await regrade_here(wanted, find_source(wanted), warn=warned.append, progress=Quiet())
        return result

    return asyncio.run(run()), warned


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by rollout; the last one of each."""
    return {f"{row['_ng_task_index']}-{row['_ng_rollout_index']}": row for row in rows_of(path)}


#: A verifier that needs no field of the row.
NUMBER = {"verifier": {"type": "regex", "pattern": "four"}}


def two_shards(directory: Path, **settings: Any) -> Plan:
    """Task 0 says four and was graded 0, 1 has another answer, 2 was cut before it said anything, 3 has no answer."""
    made = plan(directory / "bench", shards=2, tasks=4, **settings)
    cut = {"id": "c", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    found = {
        0: answered(0.0), 1: answered(1.0, text="five"), 2: answered(None, masked=True, response=cut), 3: failed(),
    }  # fmt: skip
    fill_all(made, lambda task, _: found[task])
    return made


def files_in(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.name.endswith(".lock")}
