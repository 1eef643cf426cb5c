"""The story of one rollout over attempts and sessions, read from its shard without changing it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, NotFoundError
from collector.formats import events, rows
from collector.formats.events import Event, Failed, Lost, Migrated, Success
from collector.formats.inventory import line_blocks
from collector.outcomes import RolloutState
from collector.settings import RetrySettings
from collector.shard.lock import is_held
from collector.shard.recorded import as_recorded
from collector.shard.store import RolloutStore
from collector.state.codes import Place
from collector.state.retry import is_suspect, state_under
from collector.timeline.views import AttemptEnd, FailureView, Timeline, attempts_of
from collector.timeline.words import next_step, render
from collector.verifiers.judge_saved import JudgeView, judge_in

__all__ = ["Timeline", "render", "timeline_of"]

#: Ids named to somebody who asked for one that does not exist.
_NEAR = 5
#: Comparing ids costs microseconds each; a million of them would keep a person waiting.
_MOST_COMPARED = 10_000


class FailureRow(msgspec.Struct, frozen=True):
    """What only the sidecar row of a failure says; rows that NeMo Gym wrote have these keys too."""

    http_status: int | None = msgspec.field(name=rows.FAILURE_HTTP_STATUS, default=None)
    exception_type: str | None = msgspec.field(name=rows.FAILURE_TYPE, default=None)
    stage: str | None = msgspec.field(name=rows.FAILURE_STAGE, default=None)


_row_decoder = msgspec.json.Decoder(FailureRow)


def timeline_of(artifacts: RunArtifacts, rollout_id: str, retry: RetrySettings | None = None) -> Timeline:
    """The timeline of ``rollout_id``. Needs no lock; of a live shard it is a snapshot.

    Raises NotFoundError that lists ids near to an unknown one, CorruptArtifactError for a broken history.
    """
    retry = retry or RetrySettings()
    with RolloutStore.read(artifacts) as store:
        index = store.inventory.index_by_id()
        if rollout_id not in index:
            raise _unknown(rollout_id, index, artifacts)
        past = store.history.past(index[rollout_id])
        # A live collector may have written more by now: the same events as the store has seen, and not one further.
        found = list(_events_of(artifacts, rollout_id, store.history.events))
        found += [event for event in (*store.repairs.lost, *store.repairs.recovered) if event.rollout_id == rollout_id]
        newest, has_ended = store.history.session, store.history.session in store.history.ended
        run_id = store.manifest.run_id
    # Asking takes the lock for an instant, so it is asked only where the answer matters.
    is_live = past.state is RolloutState.UNKNOWN and not has_ended and is_held(artifacts.lock)
    lost = {event.attempt_index for event in found if isinstance(event, Lost)}
    failed = [event for event in found if isinstance(event, Failed | Migrated) and event.attempt_index not in lost]
    failures = {event.attempt_index: _failure_of(artifacts, event) for event in failed}
    results = [event for event in found if isinstance(event, Success) and event.attempt_index not in lost]
    rows_at = [(artifacts.rollouts, results), (artifacts.failures, failed)]
    judged = {event.attempt_index: _judge_of(path, event) for path, events_of in rows_at for event in events_of}
    judges = {number: judge for number, judge in judged.items() if judge is not None}
    attempts = attempts_of(found, failures, judges=judges, live_session=newest if is_live else None)
    is_in_flight = bool(attempts) and attempts[-1].end is AttemptEnd.IN_FLIGHT
    step = next_step(past, retry, is_in_flight=is_in_flight)
    return Timeline(rollout_id, run_id, state_under(past, retry), attempts, step, is_suspect(past) and not is_in_flight)


def _events_of(artifacts: RunArtifacts, rollout_id: str, count: int) -> Iterator[Event]:
    """Among the first ``count`` events, every session's and the rollout's; other lines are passed over unparsed."""
    named = b'"rollout_id":' + msgspec.json.encode(rollout_id)
    lines = (line for block in line_blocks(artifacts.journal) for line in block.split(b"\n") if line)
    for line in islice(lines, count):
        if named in line or line.startswith(b'{"event":"session_'):
            event = events.parse(line)
            if getattr(event, "rollout_id", rollout_id) == rollout_id:
                yield event


def _failure_of(artifacts: RunArtifacts, event: Failed | Migrated) -> FailureView:
    row = rows.parse_part(_row_decoder, _row_of(artifacts.failures, event))
    return FailureView(
        event.failure_class,
        event.kind,
        event.reason,
        isinstance(event, Failed) and event.terminal,
        row.http_status,
        row.exception_type,
        row.stage,
    )


def _judge_of(path: Path, event: Success | Failed | Migrated) -> JudgeView | None:
    try:
        return judge_in(_row_of(path, event))
    except CorruptArtifactError:
        # The journal tells the story all the same; merges and resumes name the row.
        return None


def _row_of(path: Path, event: Success | Failed | Migrated) -> bytes:
    with path.open("rb") as file:
        line = os.pread(file.fileno(), event.length, event.offset)
    return as_recorded(line, Place(event.offset, event.length, event.checksum), path)


def _unknown(rollout_id: str, known: Iterable[str], artifacts: RunArtifacts) -> NotFoundError:
    ids = list(known)
    task = rollout_id.rpartition("-")[0] or rollout_id
    likely = [name for name in ids if name.startswith(f"{task}-")] or ids[:_MOST_COMPARED]
    near = difflib.get_close_matches(rollout_id, likely, n=_NEAR, cutoff=0.3) or likely[:_NEAR]
    what = f"there is no rollout {rollout_id!r} among {len(ids)}."
    return NotFoundError(what, f"Near to it: {', '.join(near)}. An id is <task>-<repeat>.", artifacts.inventory)
