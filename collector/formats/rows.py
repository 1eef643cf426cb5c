"""The names of ``_ng_*`` keys, and what is read of rows by them: identity stamps, scores, failure records.

``row_lines`` writes such rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from collector import jsonl
from collector.formats.failure_record import FailureRecord

TASK_INDEX: Final = "_ng_task_index"
ROLLOUT_INDEX: Final = "_ng_rollout_index"
ROLLOUT_ID: Final = "_ng_rollout_id"
ATTEMPT_INDEX: Final = "_ng_attempt_index"
RUN_ID: Final = "_ng_run_id"
SESSION: Final = "_ng_session"
#: Of a failure row that was a result until its judge's answer was found invalid.
MIGRATED: Final = "_ng_migrated_invalid_judge_response"
#: Of a failure row: the next attempt may judge the deliverable again that this one left; of a dispatched row: it shall.
REUSE: Final = "reuse_cached_deliverable"
#: Of a reply: its attempt is to leave no row.
NO_PERSIST: Final = "_ng_no_persist"
#: Begins every key of a failure row that says what went wrong; keys of a producer's own evidence, too.
FAILURE_PREFIX: Final = "_ng_failure_"
FAILURE_CLASS: Final = "_ng_failure_class"
FAILURE_RECORD: Final = "_ng_failure_record"
FAILURE_TERMINAL: Final = "_ng_failure_terminal"
FAILURE_TYPE: Final = "_ng_failure_type"
FAILURE_MESSAGE: Final = "_ng_failure_message"
FAILURE_HTTP_STATUS: Final = "_ng_failure_http_status"
FAILURE_RESPONSE_BODY: Final = "_ng_failure_response_body"
FAILURE_STAGE: Final = "_ng_failure_stage"
FAILURE_JUDGE_ERROR: Final = "_ng_failure_judge_error"
#: The server that answered, what type of result it gives, and the identity of a materialized task.
ENVIRONMENT_SERVER: Final = "_ng_environment_server"
RESULT_TYPE: Final = "_ng_result_type"
TASK_ID: Final = "_ng_task_id"
#: Keys of a failure row that its record decides, whatever a reply says.
FAILURE_ALIASES: Final = frozenset(
    {
        FAILURE_CLASS, FAILURE_RECORD, FAILURE_TERMINAL, FAILURE_TYPE, FAILURE_MESSAGE, FAILURE_HTTP_STATUS,
        FAILURE_RESPONSE_BODY, FAILURE_STAGE,
    }
)  # fmt: skip
#: Why an answer stopped, when it was the token limit: the Responses API's word, and the one that some servers write.
_TOKEN_LIMITS: Final = frozenset({"max_output_tokens", "max_tokens"})


#: Both fit into one number of 64 bits, the key of ``rollout_key``.
TaskNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
RepeatNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class RowStamp(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempt of which rollout a row belongs to, and where it is stored; every other key is passed over."""

    task: TaskNumber = msgspec.field(name=TASK_INDEX)
    repeat: RepeatNumber = msgspec.field(name=ROLLOUT_INDEX)
    explicit_id: str | None = msgspec.field(default=None, name=ROLLOUT_ID)
    attempt: int = msgspec.field(default=0, name=ATTEMPT_INDEX)
    run_id: str | None = msgspec.field(default=None, name=RUN_ID)
    session: int | None = msgspec.field(default=None, name=SESSION)
    failure_class: str | None = msgspec.field(default=None, name=FAILURE_CLASS)
    migrated: bool = msgspec.field(default=False, name=MIGRATED)

    @property
    def rollout_id(self) -> str:
        return self.explicit_id or f"{self.task}-{self.repeat}"


class RowPlace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which rollout a line of the inventory is."""

    task: TaskNumber = msgspec.field(name=TASK_INDEX)
    repeat: RepeatNumber = msgspec.field(name=ROLLOUT_INDEX)
    explicit_id: str | None = msgspec.field(default=None, name=ROLLOUT_ID)


class SavedResponse(msgspec.Struct, frozen=True):
    """What of a Responses object decides a count. A server may write anything there, and the row is saved as it was."""

    incomplete_details: Any = None


class SavedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a result row says of its score."""

    reward: float | int | None = None
    mask_sample: bool = False
    response: SavedResponse | None = None

    @property
    def is_truncated(self) -> bool:
        """Whether the saved answer stopped at a token limit."""
        return self.response is not None and names_token_limit(self.response.incomplete_details)


def names_token_limit(incomplete_details: Any) -> bool:
    """Whether the member of that name in a Responses object says that the answer stopped at a token limit."""
    reason = incomplete_details.get("reason") if isinstance(incomplete_details, dict) else None
    return isinstance(reason, str) and reason in _TOKEN_LIMITS


class _Reuse(msgspec.Struct, frozen=True):
    allowed: Any = msgspec.field(default=False, name=REUSE)


_reuse_decoder = msgspec.json.Decoder(_Reuse)
_place_decoder = msgspec.json.Decoder(RowPlace)
_stamp_decoder = msgspec.json.Decoder(RowStamp)
_verdict_decoder = msgspec.json.Decoder(SavedVerdict)

T = TypeVar("T")


def rollout_id_of(row: Mapping[str, Any]) -> str:
    """The id of the rollout that the inventory row ``row`` is of."""
    return row.get(ROLLOUT_ID) or f"{row[TASK_INDEX]}-{row[ROLLOUT_INDEX]}"


def parse_stamp(line: bytes) -> RowStamp:
    """The identity of the row in ``line``. Raises ValueError when it has none or is not JSON."""
    return parse_part(_stamp_decoder, line)


def parse_place(line: bytes) -> RowPlace:
    """The rollout of the inventory line in ``line``. Raises ValueError when it has none or is not JSON."""
    return parse_part(_place_decoder, line)


def parse_places(lines: bytes) -> list[RowPlace]:
    """The rollout of each line of a block, a third faster than one by one; empty when that way cannot read them all."""
    try:
        return _place_decoder.decode_lines(lines)
    except (msgspec.DecodeError, RecursionError):
        return []


def parse_verdict(line: bytes) -> SavedVerdict:
    """The score of the result row in ``line``. Raises ValueError when its reward is neither a number nor null."""
    return parse_part(_verdict_decoder, line)


def allows_reuse(line: bytes) -> bool:
    """Whether the failure row in ``line`` lets the next attempt use the deliverable that this one left."""
    return parse_part(_reuse_decoder, line).allowed is True


def cure_for(problem: ValueError, otherwise: str = "") -> str:
    """What to do about a line that is no row for ``problem``: rows of old releases of NeMo Gym are whole, and no use here."""
    if f"missing required field `{TASK_INDEX}`" not in str(problem):
        return otherwise
    return (
        "NeMo Gym wrote such rows before it stamped them: nothing says which task they are of. Collect again, or leave it out."
    )


def parse_part(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    """The fields that ``decoder`` wants of the row in ``line``. Raises ValueError.

    msgspec refuses lone surrogates even in fields it passes over, and a model may write them: those rows take the slow way, and
    texts read there have escapes instead.
    """
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        return msgspec.convert(_in_utf8(jsonl.loads(line)), decoder.type)


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return jsonl.escaped(value)
    if isinstance(value, dict):
        return {jsonl.escaped(key): _in_utf8(item) for key, item in value.items()}
    return [_in_utf8(item) for item in value] if isinstance(value, list) else value


def inventory_line(row: Mapping[str, Any], task: int, repeat: int) -> bytes:
    """The materialized row of one rollout as a line, newline included, with both indices."""
    return jsonl.dumps({**row, TASK_INDEX: task, ROLLOUT_INDEX: repeat}) + b"\n"


def parse_failure(line: bytes) -> tuple[RowStamp, FailureRecord]:
    """Identity and record of the sidecar row in ``line``. Raises ValueError when the two do not agree."""
    stamp = parse_stamp(line)
    record = parse_part(_failure_decoder, line).record
    record.check()
    same = (record.episode_id.rollout_id, record.episode_id.attempt, record.run_id)
    if same != (stamp.rollout_id, stamp.attempt, stamp.run_id):
        raise ValueError(f"the failure record is of {same}, its row of {stamp.rollout_id!r} attempt {stamp.attempt}")
    return stamp, record


class _FailureRow(msgspec.Struct, frozen=True):
    record: FailureRecord = msgspec.field(name=FAILURE_RECORD)
    terminal: bool = msgspec.field(name=FAILURE_TERMINAL, default=False)

    def __post_init__(self) -> None:
        if self.terminal != self.record.failure.terminal:
            raise ValueError("the failure record and its row disagree on terminal")


_failure_decoder = msgspec.json.Decoder(_FailureRow)
