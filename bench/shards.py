"""Shards with many rows, as a run leaves them behind, made in seconds."""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path

from collector import events, rows
from collector.events import Dispatched, SessionEnded, SessionStarted, Success
from collector.prepare import prepare_shard
from tests.merge.build import Plan, plan

#: Requests in flight while the shards were "collected": a row lands up to so many places late.
IN_FLIGHT = 64


def deal(made: Plan) -> None:
    """Spread the rollouts over the shards at random, each shard in order, as a submission does."""
    rng = random.Random(0)
    whole = [line for part in made.lines for line in part]
    for part in made.lines:
        part.clear()
    for line in whole:
        made.lines[rng.randrange(len(made.lines))].append(line)


def write_shard(made: Plan, index: int, seed: int) -> None:
    """Fill one shard by the formats directly: the collector's own loop would take minutes for a million rows."""
    artifacts, run_id = made.shards[index], made.run_id
    prepare_shard(artifacts, made.lines[index], made.manifest(index))
    rng = random.Random(seed)
    order = sorted(range(len(made.lines[index])), key=lambda i: i + rng.random() * IN_FLIGHT)
    common = {"run_id": run_id, "session": 0, "at": "2026-01-01T00:00:00.000+00:00"}
    with artifacts.rollouts.open("ab") as main, artifacts.journal.open("ab") as journal:
        started = SessionStarted(**common, seq=0, reason="fresh", host="h", pid=1)
        journal.write(events.encode(started))
        seq, offset = 1, 0
        for i in order:
            source = made.lines[index][i]
            stamp = rows.parse_stamp(source)
            reward = float(rng.random() < 0.4)
            line = result_line(source, run_id, reward, rng)
            main.write(line)
            same = {**common, "rollout_id": stamp.rollout_id, "attempt_index": 0}
            journal.write(events.encode(Dispatched(**same, seq=seq)))
            done = Success(
                **same, seq=seq + 1, offset=offset, length=len(line), checksum=zlib.crc32(line), reward=reward, elapsed_s=1.5
            )
            journal.write(events.encode(done))
            seq, offset = seq + 2, offset + len(line)
        journal.write(events.encode(SessionEnded(**common, seq=seq, reason="final")))


def result_line(source: bytes, run_id: str, reward: float, rng: random.Random) -> bytes:
    """A row of about 4 KB: a reasoning answer with usage, beside the input that it answers."""
    text = "the answer follows from the second equation " * 64
    tokens = rng.randrange(200, 900)
    added = {
        "response": {
            "id": f"resp_{rng.getrandbits(64):x}",
            "object": "response",
            "model": "m",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
            "usage": {"input_tokens": 310, "output_tokens": tokens, "total_tokens": 310 + tokens},
        },
        "reward": reward,
        "mask_sample": False,
        "extracted_answer": str(tokens),
        "_ng_run_id": run_id,
        "_ng_session": 0,
    }
    return source.rstrip()[:-1] + b"," + json.dumps(added, separators=(",", ":")).encode()[1:] + b"\n"


def make_shards(directory: Path, *, rows: int, shards: int, repeats: int, is_dealt: bool = True) -> Plan:
    """``rows`` results of about 4 KB in ``shards`` shards at ``directory``, dealt to them at random or neighbours together."""
    row = {"question": "two trains leave two towns " * 12, "expected": "4", "agent_ref": {"name": "bench_agent"}}
    made = plan(directory, shards=shards, tasks=rows // repeats, repeats=repeats, row=row)
    if is_dealt:
        deal(made)
    for index in range(shards):
        write_shard(made, index, index)
    os.sync()
    return made
