"""The ATIF document as frozen models: v1.7, and v1.8, which adds sound to the parts of a message.

Unknown keys and coerced types are refused, and so is what the format excludes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

SchemaVersion = Literal["ATIF-v1.7", "ATIF-v1.8"]
#: What NeMo Gym writes, and the default here.
SCHEMA_VERSION: Final = "ATIF-v1.7"

_ISO_8601 = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")

Tokens = Annotated[int, Field(ge=0)]
Cost = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Extra = dict[str, Any]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class TextPart(_Model):
    """Text of a message in several parts."""

    type: Literal["text"] = "text"
    text: str


class ImageSource(_Model):
    """An image file, by path."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class ImagePart(_Model):
    """An image of a message in several parts."""

    type: Literal["image"] = "image"
    source: ImageSource


class AudioSource(_Model):
    """A sound file, by path."""

    media_type: Literal[
        "audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff"
    ]
    path: str
    duration_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class AudioPart(_Model):
    """Sound of a message in several parts, from v1.8 on."""

    type: Literal["audio"] = "audio"
    source: AudioSource


Part = Annotated[TextPart | ImagePart | AudioPart, Field(discriminator="type")]
Content = str | tuple[Part, ...]


class ToolCall(_Model):
    """A call that the agent made."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra | None = None


class ObservationResult(_Model):
    """What came back; ``source_call_id`` names a call of the same step."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: tuple[dict[str, Any], ...] | None = None
    extra: Extra | None = None


class Observation(_Model):
    """All that came back in one step."""

    results: tuple[ObservationResult, ...]


class StepMetrics(_Model):
    """What one step used, as far as it was reported."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    cost_usd: Cost | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    completion_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    extra: Extra | None = None


class Step(_Model):
    """One turn of one side."""

    step_id: Annotated[int, Field(ge=1)]
    source: Literal["system", "user", "agent"]
    message: Content
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    observation: Observation | None = None
    metrics: StepMetrics | None = None
    llm_call_count: Annotated[int, Field(ge=0)] | None = None
    is_copied_context: bool | None = None
    extra: Extra | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        agent_only = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
        wrong = [name for name in agent_only if self.source != "agent" and getattr(self, name) is not None]
        if wrong:
            raise ValueError(f"step {self.step_id} is of the {self.source} and has {', '.join(wrong)}")
        if self.llm_call_count == 0 and (self.reasoning_content is not None or self.metrics is not None):
            raise ValueError(f"step {self.step_id} made no model call and has reasoning or metrics")
        if self.timestamp is not None and not _ISO_8601.fullmatch(self.timestamp):
            raise ValueError(f"step {self.step_id} has timestamp {self.timestamp!r}, which is not ISO 8601")
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        for result in self.observation.results if self.observation else ():
            if result.source_call_id is not None and result.source_call_id not in calls:
                raise ValueError(f"step {self.step_id} has a result of call {result.source_call_id!r}, which it did not make")
        return self


class Agent(_Model):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: tuple[dict[str, Any], ...] | None = None
    extra: Extra | None = None


class FinalMetrics(_Model):
    """Sums over the trajectory, as far as they were reported."""

    total_prompt_tokens: Tokens | None = None
    total_completion_tokens: Tokens | None = None
    total_cached_tokens: Tokens | None = None
    total_cost_usd: Cost | None = None
    total_steps: Annotated[int, Field(ge=0)] | None = None
    extra: Extra | None = None


class Document(_Model):
    """One trajectory."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: tuple[Document, ...] | None = None
    extra: Extra | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        ids = [step.step_id for step in self.steps]
        if ids != list(range(1, len(ids) + 1)):
            raise ValueError(f"the steps are numbered {ids[:10]}, not 1 to {len(ids)}")
        total = self.final_metrics.total_steps if self.final_metrics else None
        if total is not None and total != len(ids):
            raise ValueError(f"total_steps is {total} and there are {len(ids)}")
        if self.schema_version == "ATIF-v1.7" and any(isinstance(part, AudioPart) for part in self._parts()):
            raise ValueError("a message has sound, which ATIF-v1.7 does not know")
        return self

    def _parts(self) -> Iterator[Part]:
        for step in self.steps:
            results = step.observation.results if step.observation else ()
            for content in (step.message, *(result.content for result in results)):
                yield from content if isinstance(content, tuple) else ()

    def encode(self) -> bytes:
        """The file's bytes: two-space indent and a final newline; absent fields are left out.

        Raises ValueError for a value that is nested too deeply.
        """
        fields = self.model_dump(mode="json", exclude_none=True)
        try:
            return orjson.dumps(fields, option=orjson.OPT_INDENT_2) + b"\n"
        except TypeError:
            # Integers beyond 64 bits, in the arguments of a call.
            return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
