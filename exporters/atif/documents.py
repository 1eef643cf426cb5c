"""The ATIF document as frozen records: v1.7, and v1.8, which adds sound to the parts of a message.

A record is made without a question. ``Document.check`` and ``Document.parse`` refuse unknown keys, values of another type, and
what the format excludes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
import orjson
from msgspec import Meta

from collector import jsonl

SchemaVersion = Literal["ATIF-v1.7", "ATIF-v1.8"]
#: What NeMo Gym writes, and the default here.
SCHEMA_VERSION: Final = "ATIF-v1.7"

_ISO_8601: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")

ImageType: TypeAlias = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
AudioType: TypeAlias = Literal[
    "audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff"
]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Extra: TypeAlias = dict[str, Any]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is absent is None, and left out of the file."""


class TextPart(_Record, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text of a message in several parts."""

    text: str


class ImageSource(_Record, frozen=True, kw_only=True):
    """An image file, by path."""

    media_type: ImageType
    path: str


class ImagePart(_Record, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image of a message in several parts."""

    kind: ClassVar[str] = "image"
    source: ImageSource


class AudioSource(_Record, frozen=True, kw_only=True):
    """A sound file, by path."""

    media_type: AudioType
    path: str
    duration_sec: Amount | None = None


class AudioPart(_Record, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    """Sound of a message in several parts, from v1.8 on."""

    kind: ClassVar[str] = "audio"
    source: AudioSource


Part: TypeAlias = TextPart | ImagePart | AudioPart
Content: TypeAlias = str | tuple[Part, ...]


class ToolCall(_Record, frozen=True, kw_only=True):
    """A call that the agent made."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra | None = None


class ObservationResult(_Record, frozen=True, kw_only=True):
    """What came back; ``source_call_id`` names a call of the same step."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: tuple[dict[str, Any], ...] | None = None
    extra: Extra | None = None


class Observation(_Record, frozen=True, kw_only=True):
    """All that came back in one step."""

    results: tuple[ObservationResult, ...]


class StepMetrics(_Record, frozen=True, kw_only=True):
    """What one step used, as far as it was reported."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    cost_usd: Amount | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    completion_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    extra: Extra | None = None


class Step(_Record, frozen=True, kw_only=True):
    """One turn of one side."""

    step_id: Annotated[int, Meta(ge=1)]
    source: Literal["system", "user", "agent"]
    message: Content
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    observation: Observation | None = None
    metrics: StepMetrics | None = None
    llm_call_count: Count | None = None
    is_copied_context: bool | None = None
    extra: Extra | None = None

    def problem(self) -> str | None:
        """What the format excludes though every value has its type."""
        if self.source != "agent":
            agent_only = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
            if wrong := [name for name in agent_only if getattr(self, name) is not None]:
                return f"step {self.step_id} is of the {self.source} and has {', '.join(wrong)}"
        if self.llm_call_count == 0 and (self.reasoning_content is not None or self.metrics is not None):
            return f"step {self.step_id} made no model call and has reasoning or metrics"
        if self.timestamp is not None and not _ISO_8601.fullmatch(self.timestamp):
            return f"step {self.step_id} has timestamp {self.timestamp!r}, which is not ISO 8601"
        if self.observation is not None:
            calls = {call.tool_call_id for call in self.tool_calls or ()}
            for result in self.observation.results:
                if result.source_call_id is not None and result.source_call_id not in calls:
                    return f"step {self.step_id} has a result of call {result.source_call_id!r}, which it did not make"
        return None


class Agent(_Record, frozen=True, kw_only=True):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: tuple[dict[str, Any], ...] | None = None
    extra: Extra | None = None


class FinalMetrics(_Record, frozen=True, kw_only=True):
    """Sums over the trajectory, as far as they were reported."""

    total_prompt_tokens: Count | None = None
    total_completion_tokens: Count | None = None
    total_cached_tokens: Count | None = None
    total_cost_usd: Amount | None = None
    total_steps: Count | None = None
    extra: Extra | None = None


class Document(_Record, frozen=True, kw_only=True):
    """One trajectory."""

    schema_version: SchemaVersion
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: tuple[Document, ...] | None = None
    extra: Extra | None = None

    @classmethod
    def parse(cls, data: bytes) -> Document:
        """The document in a file's bytes. Raises ValueError for any that is none."""
        document = _decoder.decode(data)
        if (problem := document.problem()) is not None:
            raise ValueError(problem)
        return document

    def check(self) -> None:
        """Raise ValueError for a value of another type, and for what the format excludes."""
        msgspec.convert(self.fields(), Document)
        if (problem := self.problem()) is not None:
            raise ValueError(problem)

    def problem(self) -> str | None:
        """What the format excludes though every value has its type."""
        for step in self.steps:
            if (wrong := step.problem()) is not None:
                return wrong
        ids = [step.step_id for step in self.steps]
        if ids != list(range(1, len(ids) + 1)):
            return f"the steps are numbered {ids[:10]}, not 1 to {len(ids)}"
        total = self.final_metrics.total_steps if self.final_metrics else None
        if total is not None and total != len(ids):
            return f"total_steps is {total} and there are {len(ids)}"
        if self.schema_version == "ATIF-v1.7" and any(isinstance(part, AudioPart) for part in self._parts()):
            return "a message has sound, which ATIF-v1.7 does not know"
        return next(filter(None, map(Document.problem, self.subagent_trajectories or ())), None)

    def _parts(self) -> Iterator[Part]:
        for step in self.steps:
            results = step.observation.results if step.observation else ()
            for content in (step.message, *(result.content for result in results)):
                yield from content if isinstance(content, tuple) else ()

    def fields(self) -> dict[str, Any]:
        """The file as a JSON object; absent fields are left out."""
        return msgspec.to_builtins(self)

    def encode(self) -> bytes:
        """The file's bytes: two-space indent and a final newline.

        Raises ValueError for a value that is nested too deeply.
        """
        fields = self.fields()
        try:
            return orjson.dumps(fields, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        except TypeError:
            # Integers beyond 64 bits, in the arguments of a call; or too many levels, which the exact writer tells apart.
            jsonl.dumps(fields)
            return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


_decoder: Final = msgspec.json.Decoder(Document)
