"""What the report shows of rows: token counts of all, and examples of few. Payloads pass by and are not kept."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.formats import rows
from collector.outcome_checks import is_reward
from collector.shard.store import RolloutStore
from orchestrate.report.text import plain

#: Examples of each kind of failure, and of answers.
MOST_EXAMPLES: Final = 3


class _Response(msgspec.Struct, frozen=True, gc=False):
    usage: Any = None


class _Row(msgspec.Struct, frozen=True, gc=False):
    """Members may be of any kind: what a server or a dataset wrote there must not cost a row its reward."""

    response: _Response | str | int | float | bool | list[msgspec.Raw] | None = None
    reward: Any = None
    mask_sample: Any = None
    judge_input_tokens: Any = None
    judge_output_tokens: Any = None


_decoder: Final = msgspec.json.Decoder(_Row)


@dataclass(slots=True)
class RowFigures:
    """Numbers of all rows that were seen."""

    rows: int = 0
    prompt_tokens: array[float] = field(default_factory=lambda: array("d"))
    completion_tokens: array[float] = field(default_factory=lambda: array("d"))
    judge_prompt_tokens: array[float] = field(default_factory=lambda: array("d"))
    judge_completion_tokens: array[float] = field(default_factory=lambda: array("d"))
    rewards: array[float] = field(default_factory=lambda: array("d"))
    unreadable: int = 0
    examples: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def see(self, line: bytes, *, with_example: bool) -> None:
        """Take the numbers of one row, and its text as an example while few were taken."""
        wants_example = with_example and len(self.examples) < MOST_EXAMPLES
        try:
            row = rows.parse_part(_decoder, line)
            # A text that is looked at is read whole; what of a row is only counted need not be readable.
            example = _answer_example(jsonl.loads(line)) if wants_example else None
        except ValueError:
            self.unreadable += 1
            return
        self.rows += 1
        usage = row.response.usage if isinstance(row.response, _Response) else None
        if isinstance(usage, dict):
            _add(self.prompt_tokens, usage.get("input_tokens"))
            _add(self.completion_tokens, usage.get("output_tokens"))
        _add(self.judge_prompt_tokens, row.judge_input_tokens)
        _add(self.judge_completion_tokens, row.judge_output_tokens)
        if row.mask_sample is not True:
            _add(self.rewards, row.reward)
        if example is not None:
            self.examples.append(example)


def _add(numbers: array[float], number: Any) -> None:
    # Nothing else is a count or a score: no text, no truth, and no integer that no float holds.
    if number is not None and is_reward(number):
        numbers.append(number)


@dataclass(frozen=True, slots=True)
class FailureExample:
    """One failed rollout: what is known of it without its text, and, where asked for, the text."""

    rollout_id: str
    failure_class: str
    facts: str
    texts: dict[str, str]


def figures_of(paths: Iterable[Path], *, content: bool) -> RowFigures:
    """The figures of all rows in ``paths``."""
    figures = RowFigures()
    for path in paths:
        for _, line in jsonl.read_lines(path):
            figures.see(line, with_example=content)
    return figures


def failures_in(store: RolloutStore, *, content: bool) -> dict[str, list[FailureExample]]:
    """For each kind, a few rollouts whose latest attempt failed so."""
    wanted: dict[str, list[int]] = {}
    for index, kind in store.history.kinds.items():
        same = wanted.setdefault(kind, [])
        if len(same) < MOST_EXAMPLES:
            same.append(index)
    return {kind: list(_examples(store, same, content=content)) for kind, same in wanted.items()}


def _examples(store: RolloutStore, indices: Sequence[int], *, content: bool) -> Iterator[FailureExample]:
    history = store.history
    with store.artifacts.failures.open("rb", buffering=0) as file:
        for index in indices:
            line = os.pread(file.fileno(), history.lengths[index], history.offsets[index])
            try:
                row = jsonl.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield _failure_example(store.inventory.rollout_id(index), row, content=content)


def _failure_example(rollout_id: str, row: dict[str, Any], *, content: bool) -> FailureExample:
    facts = {
        "HTTP": row.get(rows.FAILURE_HTTP_STATUS),
        "exception": row.get(rows.FAILURE_TYPE),
        "stage": row.get(rows.FAILURE_STAGE),
        "attempt": row.get(rows.ATTEMPT_INDEX, 0),
    }
    texts = {
        "reason": row.get("failure_reason"),
        "server's reply": row.get(rows.FAILURE_RESPONSE_BODY),
        "answer": _output_text(row.get("response")),
    }
    return FailureExample(
        plain(rollout_id, 80),
        plain(row.get(rows.FAILURE_CLASS), 80),
        ", ".join(f"{name} {plain(value, 60)}" for name, value in facts.items() if value is not None),
        {name: plain(value) for name, value in texts.items() if value} if content else {},
    )


def _answer_example(row: dict[str, Any]) -> dict[str, str]:
    task, repeat = row.get(rows.TASK_INDEX), row.get(rows.ROLLOUT_INDEX)
    params = row.get("responses_create_params")
    prompt = params.get("input") if isinstance(params, dict) else None
    return {
        "rollout": plain(row.get(rows.ROLLOUT_ID) or f"{task}-{repeat}", 80),
        "reward": plain(row.get("reward", "none"), 40),
        "prompt": plain(prompt if isinstance(prompt, str) else _message_text(prompt)),
        "answer": plain(_output_text(row.get("response"))),
    }


def _output_text(response: object) -> str:
    return _message_text(response.get("output")) if isinstance(response, dict) else ""


def _message_text(items: object) -> str:
    """The text of the last message in a list of them, without what a tool said."""
    messages = [item for item in items if isinstance(item, dict) and "content" in item] if isinstance(items, list) else []
    content = messages[-1]["content"] if messages else ""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def row_files(merged: RunArtifacts, shards: Sequence[RunArtifacts]) -> list[Path]:
    """The projection where there is one, the shards' rows otherwise."""
    return [merged.rollouts] if merged.rollouts.is_file() else [run.rollouts for run in shards if run.rollouts.is_file()]
