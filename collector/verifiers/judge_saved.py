"""What a row says of its judge: who it was, what it said, and what it cost, apart from the policy's tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from collector.formats import rows
from collector.text.counted import counted

#: Keys of a row that say what its judge cost, in tokens.
INPUT_TOKENS: Final = "judge_input_tokens"
OUTPUT_TOKENS: Final = "judge_output_tokens"
JUDGE_TOKENS: Final = (INPUT_TOKENS, OUTPUT_TOKENS)


@dataclass(frozen=True, slots=True)
class JudgeView:
    """One judgement. ``verdict`` None: its words were none. Tokens are None where the judge's server did not count."""

    model: str
    verdict: str | None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def __str__(self) -> str:
        said = "no verdict" if self.verdict is None else " ".join(self.verdict.split())
        each = ((self.input_tokens, "in"), (self.output_tokens, "out"))
        counts = ", ".join(f"{counted(count, 'token')} {way}" for count, way in each if count is not None)
        return f"judge {self.model}: {said}" + (f" ({counts})" if counts else "")


class _Row(msgspec.Struct, frozen=True, gc=False):
    # Any: a dataset may use the same names for something else.
    judge: Any = None
    judge_input_tokens: Any = None
    judge_output_tokens: Any = None


_decoder: Final = msgspec.json.Decoder(_Row)


def judge_in(line: bytes) -> JudgeView | None:
    """The judgement in a saved row; None when there is none."""
    row = rows.parse_part(_decoder, line)
    judge = row.judge
    if not isinstance(judge, dict) or not isinstance(judge.get("model"), str) or "verdict" not in judge:
        return None
    verdict = judge["verdict"]
    tokens = tokens_of({INPUT_TOKENS: row.judge_input_tokens, OUTPUT_TOKENS: row.judge_output_tokens})
    return JudgeView(judge["model"], verdict if isinstance(verdict, str) else None, *tokens)


def tokens_of(extra: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """What a judge was sent and what it said, in tokens."""
    counts = (extra.get(name) for name in JUDGE_TOKENS)
    sent, said = (count if isinstance(count, int) and not isinstance(count, bool) else None for count in counts)
    return sent, said
