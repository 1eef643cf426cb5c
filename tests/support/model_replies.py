"""What the deterministic model says: the reply to a prompt is a pure function of its text and of the marks in it.

Marks stand anywhere in the prompt, each in double square brackets:

``[[task: ID]]``      the name under which requests are counted; without it a digest of the prompt
``[[answer: X]]``     the answer is X; without it a number derived from the digest
``[[think: T]]``      T is returned as reasoning beside the answer
``[[delay: 0.2]]``    the answer comes that many seconds later
``[[mode: 500 x2]]``  the first two requests of the task meet that mode; without ``x2`` all of them do
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# A constant instead of the clock: the same request gets the same bytes in every run.
CREATED_AT = 1_700_000_000
_MARK = re.compile(r"\[\[(task|answer|think|delay|mode):\s*(.*?)\s*\]\]", re.DOTALL)


class Mode(StrEnum):
    """How a completion request ends."""

    OK = "ok"
    SILENCE = "silence"  # read the request, never answer; /health stays 200
    DROP = "drop"  # close in the middle of the body
    DROP_BEFORE = "drop-before"  # close without a single byte of reply
    RESET = "reset"  # the same with RST instead of FIN
    CLOSE = "close"  # a whole answer, then an unannounced close of a connection said to be kept alive
    DRIP = "drip"  # a whole answer, in ten pieces
    MALFORMED = "malformed"  # 200 with half a JSON document
    LENGTH = "length"  # text cut at the token limit
    LENGTH_EMPTY = "length-empty"  # the token limit reached before any text
    BAD_REQUEST = "400"  # context length exceeded
    UNAUTHORIZED = "401"
    NOT_FOUND = "404"
    RATE_LIMITED = "429"
    ERROR = "500"
    UNAVAILABLE = "503"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A mode and for how many requests of a task it holds; ``first=None`` means always."""

    mode: Mode
    first: int | None = None

    @classmethod
    def parse(cls, text: str) -> Behaviour:
        """The behaviour written as ``MODE`` or ``MODE xN``; ValueError for any other text."""
        name, _, count = text.partition(" x")
        return cls(Mode(name.strip()), int(count) if count else None)

    def at(self, nth: int) -> Mode:
        """The mode that the nth request (from 1) of a task meets."""
        return self.mode if self.first is None or nth <= self.first else Mode.OK


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks for."""

    task: str
    digest: str
    answer: str
    thought: str
    delay_s: float
    behaviour: Behaviour | None
    words: int
    token_limit: int | None


def read_prompt(body: dict[str, Any]) -> Prompt:
    """The prompt of a chat completions or responses request body."""
    text = "\n".join([_text(body.get("instructions")), _text(body.get("messages", body.get("input")))])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    marks: dict[str, str] = dict(_MARK.findall(text)) if "[[" in text else {}
    limit = body.get("max_output_tokens") or body.get("max_completion_tokens") or body.get("max_tokens")
    return Prompt(
        task=marks.get("task", digest),
        digest=digest,
        answer=marks.get("answer", f"The answer is {int(digest[:6], 16) % 1000}"),
        thought=marks.get("think", ""),
        delay_s=float(marks.get("delay", 0)),
        behaviour=Behaviour.parse(marks["mode"]) if "mode" in marks else None,
        words=len(text.split()),
        token_limit=limit,
    )


def _text(value: Any) -> str:
    """All text of a message, a list of messages or a list of content parts, one per line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(item) for item in value)
    if isinstance(value, dict):
        return _text(value.get("content", value.get("text", value.get("output", ""))))
    return ""


@dataclass(frozen=True, slots=True)
class Said:
    """The words of one answer and whether the token limit cut them; a token is a word here."""

    text: str
    thought: str
    tokens: int
    cut: bool


def say(prompt: Prompt, mode: Mode) -> Said:
    """The words that answer a prompt under a mode."""
    words = prompt.answer.split(" ")
    limit = len(words) if prompt.token_limit is None else prompt.token_limit
    if mode is Mode.LENGTH_EMPTY:
        return Said("", prompt.thought, limit, cut=True)
    kept = words[:limit]
    return Said(" ".join(kept), prompt.thought, len(kept), cut=mode is Mode.LENGTH or len(kept) < len(words))


def chat_reply(prompt: Prompt, said: Said, model: str, nth: int) -> dict[str, Any]:
    """A ``chat.completion`` object."""
    message = {"role": "assistant", "content": said.text}
    if said.thought:
        message["reasoning_content"] = said.thought
    return {
        "id": f"chatcmpl-{prompt.digest}-{nth}",
        "object": "chat.completion",
        "created": CREATED_AT,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "length" if said.cut else "stop"}],
        "usage": {
            "prompt_tokens": prompt.words,
            "completion_tokens": said.tokens,
            "total_tokens": prompt.words + said.tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def responses_reply(prompt: Prompt, said: Said, model: str, nth: int) -> dict[str, Any]:
    """A ``response`` object."""
    name = f"{prompt.digest}-{nth}"
    status = "incomplete" if said.cut else "completed"
    output: list[dict[str, Any]] = []
    if said.thought:
        output.append({"id": f"rs_{name}", "type": "reasoning", "summary": [{"type": "summary_text", "text": said.thought}]})
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        output.append({"id": f"msg_{name}", "type": "message", "role": "assistant", "status": status, "content": content})
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": CREATED_AT,
        "model": model,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if said.cut else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": prompt.words,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt.words + said.tokens,
        },
    }


_ERRORS: dict[Mode, tuple[str, str, str]] = {
    Mode.BAD_REQUEST: (
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 2048 tokens, however you requested 4096 tokens.",
    ),
    Mode.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    Mode.NOT_FOUND: ("invalid_request_error", "model_not_found", "The model does not exist."),
    Mode.RATE_LIMITED: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    Mode.ERROR: ("server_error", "internal_error", "The server had an error while processing your request."),
    Mode.UNAVAILABLE: ("server_error", "unavailable", "The engine is overloaded."),
}


def error_reply(mode: Mode) -> dict[str, Any]:
    """The error body of a mode that ends in an HTTP error status."""
    kind, code, message = _ERRORS[mode]
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
