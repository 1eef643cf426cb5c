"""From the bytes of one row to its digest: identity, findings, missing evidence and counts. Never raises for any bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import msgspec

from collector import jsonl, rows
from merge.health.checks import BIT, Check
from merge.health.evidence import Call, Evidence, short
from merge.health.response import response_evidence
from merge.health.rules import RULES, Finding, ends_on_failure
from merge.health.trajectory import trajectory_evidence


class Digest(msgspec.Struct, array_like=True, gc=False):
    """What a report keeps of one row; about 300 bytes, whatever the row weighs."""

    #: None: the row does not say, or cannot be read.
    task: int | str | None = None
    repeat: int | str | None = None
    stage: int | str | None = None
    rollout_id: str | None = None
    is_readable: bool = True
    findings: tuple[Finding, ...] = ()
    #: Bit set of the checks that could not be evaluated.
    unobserved: int = 0
    has_capture: bool = False
    #: Whether every call of the agent's turns is known, and how many of them succeeded.
    is_policy_observed: bool = False
    successful_calls: int = 0
    failed_calls: int = 0
    failed_by_status: dict[str, int] | None = None
    ended_on_error: bool = False
    replayed_calls: int = 0
    #: Prompt and completion tokens by the response's usage, then by the captured calls.
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)


class _Row(msgspec.Struct, frozen=True, gc=False):
    """The members that checks look at; the rest of the row is passed over."""

    task: Any = msgspec.field(name=rows.TASK_INDEX, default=None)
    repeat: Any = msgspec.field(name=rows.ROLLOUT_INDEX, default=None)
    rollout_id: Any = msgspec.field(name=rows.ROLLOUT_ID, default=None)
    stage: Any = msgspec.field(name="stage_index", default=None)
    response: Any = None
    trajectory: Any = msgspec.field(name="ng_trajectory", default=None)


_decoder: Final = msgspec.json.Decoder(_Row)


class Place(NamedTuple):
    """Where a row stands: its file, and its line, or its byte where lines are not counted."""

    file: str
    line: int | None = None
    byte: int | None = None

    def locator(self) -> dict[str, Any]:
        """The place as a report says it."""
        where = {"line": self.line} if self.line is not None else {"byte": self.byte}
        return {"source_file": self.file, **where}


def digest_row(line: bytes, place: Place, ignored: frozenset[Check]) -> Digest:
    """The digest of the row in ``line``."""
    try:
        row = _parse(line)
    except ValueError as error:
        return unreadable(place, short(error), ignored)
    evidence = _evidence_of(row)
    findings, unobserved = _evaluate(evidence, ignored)
    if evidence.unreadable is not None and Check.UNREADABLE not in ignored:
        detail = {"reason": "what the row recorded cannot be read", "error": evidence.unreadable}
        findings.insert(0, Finding(Check.UNREADABLE, detail))
    return _counted(_identified(row, findings, unobserved), evidence)


def unreadable(place: Place, reason: str, ignored: frozenset[Check]) -> Digest:
    """The digest of a row that cannot be read, or must not be: nothing else about it is known."""
    finding = Finding(Check.UNREADABLE, {"reason": reason}, place.locator())
    findings = () if Check.UNREADABLE in ignored else (finding,)
    bits = sum(BIT[check] for check in RULES if check not in ignored)
    return Digest(is_readable=False, findings=findings, unobserved=bits)


def _parse(line: bytes) -> _Row:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        # The exact reader knows what the fast one refuses (a lone surrogate, a byte order mark), and says what is wrong.
        value = jsonl.loads(line.removeprefix(b"\xef\xbb\xbf"))
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__}, not an object") from None  # noqa: TRY004 - a finding
        return msgspec.convert(value, _Row)


def _evidence_of(row: _Row) -> Evidence:
    try:
        if row.trajectory is None:
            return response_evidence(row.response)
        return trajectory_evidence(row.trajectory, row.response)
    except RecursionError:
        return Evidence(unreadable="nested too deeply")


def _evaluate(evidence: Evidence, ignored: frozenset[Check]) -> tuple[list[Finding], int]:
    findings: list[Finding] = []
    unobserved = 0
    for check, rule in RULES.items():
        if check in ignored:
            continue
        try:
            found = rule(evidence)
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            # One strange row must not hide what is wrong with the others.
            found = None
            if Check.EXECUTION_ERROR not in ignored:
                detail = {"failed_check": check, "error": type(error).__name__}
                findings.append(Finding(Check.EXECUTION_ERROR, detail))
        if found is None:
            unobserved |= BIT[check]
        else:
            findings += found
    return findings, unobserved


def _identified(row: _Row, findings: list[Finding], unobserved: int) -> Digest:
    task, repeat = _index(row.task), _index(row.repeat)
    trajectory_id = row.trajectory.get("rollout_id") if isinstance(row.trajectory, dict) else None
    name = row.rollout_id or trajectory_id
    return Digest(
        task=task,
        repeat=0 if repeat is None else repeat,
        stage=_index(row.stage),
        rollout_id=short(name) if isinstance(name, str) else None,
        findings=tuple(findings),
        unobserved=unobserved,
    )


def _index(value: object) -> int | str | None:
    if value is None or (isinstance(value, int) and abs(value) < 1 << 62):
        return value
    return short(value)


def _counted(digest: Digest, evidence: Evidence) -> Digest:
    prompt, completion = evidence.usage
    digest.tokens = (prompt or 0, completion or 0, 0, 0)
    if not evidence.has_trajectory:
        return digest
    calls = evidence.captured or ()
    failed = [call for call in calls if call.is_failed]
    digest.has_capture = bool(calls)
    bindings = evidence.of_turns
    if bindings is not None:
        digest.is_policy_observed = evidence.is_call_scope_complete and bindings.is_complete
        digest.successful_calls = sum(call.is_successful for call in bindings.matched)
    digest.failed_calls = len(failed)
    digest.failed_by_status = dict(Counter(_status(call) for call in failed)) or None
    digest.ended_on_error = ends_on_failure(calls)
    seen = Counter(call.identity for call in calls if call.identity is not None)
    digest.replayed_calls = sum(count - 1 for count in seen.values())
    captured = (sum(call.tokens_in or 0 for call in calls), sum(call.tokens_out or 0 for call in calls))
    digest.tokens = (*digest.tokens[:2], *captured)
    return digest


def _status(call: Call) -> str:
    return "unknown" if call.status_code is None else str(call.status_code)
