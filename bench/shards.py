"""Shards with many rows, as a run leaves them behind, made in seconds."""

from __future__ import annotations

import os
import random
import re
import zlib
from pathlib import Path

from collector import jsonl
from collector.formats import events, rows
from collector.formats.events import Dispatched, SessionEnded, SessionStarted, Success
from collector.preparation.prepare import prepare_shard
from tests.merge.build import Plan, plan

#: Requests in flight while the shards were "collected": a row lands up to so many places late.
IN_FLIGHT = 64
_WORDS = re.split(
    " ",
    "the of and to in we that is for with let then since hence vector matrix integral prime number theorem assume value equal"
    ' sum product limit function answer step consider check "result" triangle circle radius probability expected random graph'
    " naïve façade élan Größe 数学 证明 因此 \\frac{1}{2} \\boxed{4} so.\n\n thus,\n",
)


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
    rng, answers = random.Random(seed), Answers()
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
            line = result_line(source, run_id, reward, answers, rng)
            main.write(line)
            same = {**common, "rollout_id": stamp.rollout_id, "attempt_index": 0}
            journal.write(events.encode(Dispatched(**same, seq=seq)))
            done = Success(
                **same, seq=seq + 1, offset=offset, length=len(line), checksum=zlib.crc32(line), reward=reward, elapsed_s=1.5
            )
            journal.write(events.encode(done))
            seq, offset = seq + 2, offset + len(line)
        journal.write(events.encode(SessionEnded(**common, seq=seq, reason="final")))


class Answers:
    """Some hundred texts such as models write: prose with line breaks, quotes, formulas and letters beyond ASCII."""

    def __init__(self, size_bytes: int = 2_400, count: int = 400) -> None:
        rng = random.Random(1)
        self._all = [self._text(rng, size_bytes) for _ in range(count)]

    def one(self, rng: random.Random) -> str:
        return rng.choice(self._all)

    @staticmethod
    def _text(rng: random.Random, size_bytes: int) -> str:
        words: list[str] = []
        size = 0
        while size < size_bytes:
            words.append(rng.choice(_WORDS))
            size += len(words[-1].encode()) + 1
        return " ".join(words)


def result_line(source: bytes, run_id: str, reward: float, answers: Answers, rng: random.Random) -> bytes:
    """A row of about 4 KB: an answer with everything that a Responses server says of it, beside the input that it answers."""
    read, written = rng.randrange(200, 900), rng.randrange(300, 4000)
    text = {"type": "output_text", "text": answers.one(rng), "annotations": [], "logprobs": None}
    name = f"{rng.getrandbits(64):x}"
    added = {
        "response": {
            "id": f"resp_{name}",
            "created_at": 1_767_225_600.0 + written,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": "m",
            "object": "response",
            "output": [{"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": written // 2},
                "total_tokens": read + written,
            },
        },
        "reward": reward,
        "library_reward": reward,
        "mask_sample": False,
        "extracted_answer": str(written),
        "_ng_environment_server": "bench_env",
        "_ng_run_id": run_id,
        "_ng_session": 0,
    }
    return source.rstrip()[:-1] + b"," + jsonl.dumps(added)[1:] + b"\n"


def make_shards(directory: Path, *, rows: int, shards: int, repeats: int, is_dealt: bool = True) -> Plan:
    """``rows`` results of about 4 KB in ``shards`` shards at ``directory``, dealt to them at random or neighbours together."""
    row = {
        "responses_create_params": {
            "input": [
                {"role": "system", "content": "You are a careful mathematician. Answer inside \\boxed{}."},
                {"role": "user", "content": "Two trains leave two towns. " * 21},
            ]
        },
        "expected_answer": "4",
        "question_id": "q17",
        "subject": "algebra",
        "agent_ref": {"type": "responses_api_agents", "name": "bench_agent"},
        "task_source": "bench_resources",
    }
    made = plan(directory, shards=shards, tasks=rows // repeats, repeats=repeats, row=row)
    if is_dealt:
        deal(made)
    for index in range(shards):
        write_shard(made, index, index)
    os.sync()
    return made
