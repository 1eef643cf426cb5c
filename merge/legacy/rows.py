"""What lines of NeMo Gym's own files say: result rows, failures and inventory rows, without a manifest to hold them against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from collector import jsonl
from collector.formats import rows
from collector.outcome_checks import is_reward
from collector.outcomes import FailureClass

T = TypeVar("T")

_PARAMS: Final = "responses_create_params"


class AgentRef(msgspec.Struct, frozen=True, gc=False):
    """Who answered."""

    name: str | None = None


class _Stamped(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which rollout a line is of. Without both numbers nobody can tell."""

    task: rows.TaskNumber = msgspec.field(name=rows.TASK_INDEX)
    repeat: rows.RepeatNumber = msgspec.field(name=rows.ROLLOUT_INDEX)
    agent_ref: AgentRef | None = None

    @property
    def agent(self) -> str | None:
        """The agent's name; files of a single agent may leave it out."""
        return self.agent_ref.name if self.agent_ref else None

    @property
    def key(self) -> int:
        return self.task << 32 | self.repeat


class ResultRow(_Stamped, frozen=True, kw_only=True, gc=False):
    """What of a result row decides a count."""

    server: str | None = msgspec.field(name=rows.ENVIRONMENT_SERVER, default=None)
    reward: float | int | None = None
    mask_sample: bool | None = None
    response: rows.SavedResponse | None = None

    def __post_init__(self) -> None:
        # The decoder has refused NaN and infinities.
        if type(self.reward) is int and not is_reward(self.reward):
            raise ValueError("a reward that no float holds")

    @property
    def is_truncated(self) -> bool:
        return self.response is not None and rows.names_token_limit(self.response.incomplete_details)


class FailureRow(_Stamped, frozen=True, kw_only=True, gc=False):
    """What of a failure row decides a count."""

    server: str | None = msgspec.field(name=rows.ENVIRONMENT_SERVER, default=None)
    failure_class: str = msgspec.field(name=rows.FAILURE_CLASS)
    terminal: bool | None = msgspec.field(name=rows.FAILURE_TERMINAL, default=None)
    kind: str | None = msgspec.field(name="failure_kind", default=None)

    @property
    def is_terminal(self) -> bool:
        return self.terminal is True or self.failure_class == FailureClass.PERMANENT


class _AnyObject(msgspec.Struct, frozen=True, gc=False):
    """An object whose members are passed over."""


class InventoryRow(_Stamped, frozen=True, kw_only=True, gc=False):
    """What of an inventory row decides a count."""

    params: _AnyObject | None = msgspec.field(name=_PARAMS, default=None)


class _Input(msgspec.Struct, frozen=True):
    input: msgspec.Raw = msgspec.Raw(b"")


class _Asked(msgspec.Struct, frozen=True):
    params: _Input | None = msgspec.field(name=_PARAMS, default=None)


@dataclass(frozen=True, slots=True)
class RowKind(Generic[T]):
    """One of the three kinds of lines: what it is called, and what reads it."""

    name: str
    decoder: msgspec.json.Decoder[T]


RESULT: Final = RowKind("a result row", msgspec.json.Decoder(ResultRow))
FAILURE: Final = RowKind("a failure row", msgspec.json.Decoder(FailureRow))
INVENTORY: Final = RowKind("an inventory row", msgspec.json.Decoder(InventoryRow))
_asked: Final = msgspec.json.Decoder(_Asked)


def question_in(line: bytes) -> bytes:
    """What the inventory row in ``line`` asks, as it is written there; nothing when it has no input."""
    try:
        params = _asked.decode(line).params
    except (msgspec.DecodeError, RecursionError):
        # Text that the fast decoder does not read, such as a lone surrogate.
        found = jsonl.loads(line).get(_PARAMS) or {}
        return jsonl.dumps(found["input"]) if "input" in found else b""
    return bytes(params.input) if params else b""
