"""What can become of an attempt and of a rollout: closed sets as enums, outcomes as frozen values.

Three questions stay apart: is the sample usable as a measurement (``masked``), what kind of thing went wrong (``kind``), and
why (``reason``). A kind never implies a retry decision; ``terminal`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from collector.outcome_checks import require, require_open_keys, require_text_or_none, utf8

#: Longest reason kept, in characters, as NeMo Gym's EpisodeFailure defines it.
REASON_LIMIT: Final = 2000
#: Longest response body kept as evidence, in characters; an ellipsis marks the cut.
BODY_LIMIT: Final = 2000


class RolloutState(StrEnum):
    """Where a rollout stands; always exactly one, and over an inventory they add up to ``expected``."""

    MEASURED = "measured"
    MASKED = "masked"
    UNSCORED = "unscored"
    OMITTED = "omitted"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    UNKNOWN = "unknown"
    NEVER_DISPATCHED = "never_dispatched"


class Delivery(StrEnum):
    """Whether a failed request reached the other side. ``not_sent`` needs proof."""

    NOT_SENT = "not_sent"
    POSSIBLY_DELIVERED = "possibly_delivered"
    DELIVERED = "delivered"


class FailureSource(StrEnum):
    """Who says that the attempt failed."""

    ENVIRONMENT = "environment"
    COLLECTOR = "collector"


class FailureClass(StrEnum):
    """Routing classes this project produces itself. The set is open: a class read from a file may be any string."""

    AGENT_REQUEST_FAILED = "agent_request_failed"
    AGENT_RUN_ERROR = "agent_run_error"
    ENVIRONMENT_SERVER_FAILED = "environment_server_failed"
    JUDGE_FAILED = "judge_failed"
    JUDGE_INVALID = "judge_invalid"
    PERMANENT = "permanent"
    TIMEOUT_EXCEEDED = "timeout_exceeded"
    SKIPPED = "skipped"


class FailureKind(StrEnum):
    """The 22 registered kinds. ``<server>:<kind>`` and unknown names are kept as they are."""

    TRANSPORT_UNREACHABLE = "transport_unreachable"
    TRANSPORT_PEER_DROP = "transport_peer_drop"
    TRANSPORT_TIMEOUT = "transport_timeout"
    TRANSPORT_LOCAL_RESOURCE = "transport_local_resource"
    AGENT_RUN_ERROR = "agent_run_error"
    AGENT_REQUEST_FAILED = "agent_request_failed"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_COMMAND_NOT_ALLOWED = "agent_command_not_allowed"
    JUDGE_FAILED = "judge_failed"
    JUDGE_UNPARSEABLE = "judge_unparseable"
    VERIFIER_ERROR = "verifier_error"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_QUOTA_EXHAUSTED = "provider_quota_exhausted"
    PROVIDER_OOM_KILLED = "provider_oom_killed"
    SESSION_LOST = "session_lost"
    SESSION_EXPIRED = "session_expired"
    SESSION_RELEASE_FAILED = "session_release_failed"
    CANCELLED = "cancelled"
    KILL_SHAPED = "kill_shaped"
    SHUTDOWN = "shutdown"
    PERSISTENCE_FAILED = "persistence_failed"
    COHORT_INCOMPLETE = "cohort_incomplete"


class Stage(StrEnum):
    """Where in an episode it failed."""

    ADMISSION = "admission"
    SEED = "seed"
    AGENT = "agent"
    VERIFICATION = "verification"
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBy:
    """Which server of a NeMo Gym ran an attempt; stamped on its row so that results can be grouped by it."""

    server: str
    #: The implementation in the server's block: readers know by it which type of result the row holds.
    result_type: str
    #: The identity of a materialized task, as it was sent.
    task_id: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no result. Nothing here invents a reward."""

    failure_class: str
    reason: str
    kind: str | None = None
    terminal: bool = False
    source: FailureSource = FailureSource.COLLECTOR
    delivery: Delivery = Delivery.POSSIBLY_DELIVERED
    stage: Stage | None = None
    http_status: int | None = None
    exception_type: str | None = None
    response_body: str | None = None
    #: The saved answer of a failed judge call: kept so that re-judging needs no new answer.
    response: dict[str, Any] | None = None
    #: Seconds the other side asked to wait (Retry-After); None when it did not.
    retry_after_s: float | None = None
    #: The attempt left a deliverable that the next one may judge instead of making another.
    reuse_deliverable: bool = False
    #: What the other side left to look at, by name; kept as ``_ng_failure_<name>``.
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])
    served_by: ServedBy | None = None
    #: Further top-level keys for the row (what a judge said, and its tokens); none that ``is_reserved``.
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        require("Failure", "failure_class", self.failure_class, str)
        require("Failure", "reason", self.reason, str)
        require("Failure", "terminal", self.terminal, bool)
        require("Failure", "reuse_deliverable", self.reuse_deliverable, bool)
        for name in ("kind", "exception_type", "response_body"):
            require_text_or_none("Failure", name, getattr(self, name))
        require_open_keys("failure", self.extra)
        if self.source is FailureSource.ENVIRONMENT and self.delivery is not Delivery.DELIVERED:
            raise ValueError("a failure reported by the environment was delivered to it")
        # The journal is UTF-8, and what a server or an exception says need not be.
        for name in ("failure_class", "kind", "reason", "exception_type"):
            object.__setattr__(self, name, utf8(getattr(self, name), REASON_LIMIT))
        # Some servers answer with a number that is no status; the reason still says it.
        if self.http_status is not None and not 100 <= self.http_status <= 599:
            object.__setattr__(self, "http_status", None)

    @property
    def is_lost_connection(self) -> bool:
        """Whether the other side went away, or was not there, before it said anything."""
        gone = {FailureKind.TRANSPORT_PEER_DROP, FailureKind.TRANSPORT_UNREACHABLE}
        return self.http_status is None and (self.kind in gone if self.stage is not Stage.VERIFICATION else self._is_of_judge)

    @property
    def is_server_error(self) -> bool:
        """Whether the other side answered that it cannot serve (5xx)."""
        is_asked = self.stage is not Stage.VERIFICATION or self._is_of_judge
        return self.http_status is not None and self.http_status >= 500 and is_asked

    @property
    def is_cut_off(self) -> bool:
        """Whether the agent itself was asked to stop in the middle of it."""
        return self.kind == FailureKind.SHUTDOWN and self.source is FailureSource.COLLECTOR

    @property
    def _is_of_judge(self) -> bool:
        return self.failure_class == FailureClass.JUDGE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an agent gives back for one task: an OpenAI Responses object and what a verifier needs of it."""

    #: Empty for an environment that has none; the row then has no such key.
    response: dict[str, Any]
    text: str
    #: The model stopped at a token limit; kept with the row and counted beside the score.
    truncated: bool = False

    def __post_init__(self) -> None:
        require("Answer", "response", self.response, dict)
        require("Answer", "text", self.text, str)
        require("Answer", "truncated", self.truncated, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier says of an answer. ``reward`` None means completed and deliberately unscored."""

    reward: float | None
    masked: bool = False
    kind: str | None = None
    reason: str | None = None
    #: Further top-level keys for the row (an extracted answer, sub-scores); none that ``is_reserved``.
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        require("Verdict", "masked", self.masked, bool)
        require_text_or_none("Verdict", "kind", self.kind)
        require_text_or_none("Verdict", "reason", self.reason)
        require_open_keys("verdict", self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """An attempt with a result: the answer and its verdict."""

    answer: Answer
    verdict: Verdict
    served_by: ServedBy | None = None
    #: Keys of the row that its result repeats; None: all of them. A server that echoes its request says what belongs to it.
    row_keys: frozenset[str] | None = None

    @property
    def state(self) -> RolloutState:
        """``masked``, ``unscored`` or ``measured``."""
        if self.verdict.masked:
            return RolloutState.MASKED
        return RolloutState.UNSCORED if self.verdict.reward is None else RolloutState.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Omitted:
    """An attempt that the other side asked not to record."""

    reason: str


Outcome: TypeAlias = Completed | Failure | Omitted
