"""From the bytes of rows to their digests: identities, outcomes and counts. Never raises for any bytes."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from collector import jsonl
from collector.formats import rows
from merge.health.checks import BIT, Check
from merge.health.evidence import Evidence, short
from merge.health.response import Pattern, answer_evidence, read_answer
from merge.health.rules import RULES, Finding
from merge.health.table import NUMBER_LIMIT, Name, Outcome, Table, outcome_of
from merge.health.tally import Tally
from merge.health.trajectory import trajectory_evidence


class _Row(msgspec.Struct, frozen=True, gc=False):
    """The members that checks look at; the rest of the row is passed over."""

    task: Any = msgspec.field(name=rows.TASK_INDEX, default=None)
    repeat: Any = msgspec.field(name=rows.ROLLOUT_INDEX, default=None)
    rollout_id: Any = msgspec.field(name=rows.ROLLOUT_ID, default=None)
    stage: Any = msgspec.field(name="stage_index", default=None)
    response: Any = None
    trajectory: Any = msgspec.field(name="ng_trajectory", default=None)


_decoder: Final = msgspec.json.Decoder(_Row)
_TOO_DEEP: Final = "nested too deeply"


class Digester:
    """Rows of one file, one after the other, to their digests.

    Rows that differ only in what no check looks at are evaluated once: most of a file are of some few patterns.
    """

    def __init__(self, file: str, unit: Literal["line", "byte"], ignored: frozenset[Check]) -> None:
        """``unit``: what the number of a row counts, by which a finding about it says where it stands in ``file``."""
        self.table = Table()
        self.tally = Tally()
        # A name on a disk need not be UTF-8, and a report is.
        self._file = jsonl.escaped(file)
        self._unit = unit
        self._ignored = ignored
        #: The outcomes without a finding, and those of them that answers had. One with a finding names its call.
        self._shared: dict[Outcome, Outcome] = {}
        self._plans: dict[Pattern | None, Outcome] = {}

    def add(self, line: bytes | memoryview, number: int) -> None:
        """Digest the row in ``line``, which is at ``number``."""
        try:
            row = _parse(line)
            task, repeat, stage, rollout_id = _index(row.task), _index(row.repeat), _index(row.stage), _rollout_id(row)
        except ValueError as error:
            self.add_unreadable(number, short(error))
            return
        except RecursionError:
            # Text of an index that is no index, but lists in lists.
            self.add_unreadable(number, _TOO_DEEP)
            return
        outcome = self._of_answer(row) if row.trajectory is None else self._of_trajectory(row)
        self._append(task, 0 if repeat is None else repeat, stage, rollout_id, outcome)

    def add_unreadable(self, number: int, reason: str) -> None:
        """The digest of a row that cannot be read, or must not be: nothing else about it is known."""
        finding = Finding(Check.UNREADABLE, {"reason": reason}, {"source_file": self._file, self._unit: number})
        bits = sum(BIT[check] for check in RULES if check not in self._ignored)
        self._append(None, None, None, None, self._outcome([finding], bits, is_readable=False))

    def _append(
        self, task: Name | None, repeat: Name | None, stage: Name | None, rollout_id: str | None, outcome: Outcome
    ) -> None:
        table = self.table
        table.tasks.append(task)
        table.repeats.append(repeat)
        table.stages.append(stage)
        table.rollout_ids.append(rollout_id)
        table.outcomes.append(outcome)
        self.tally.blind[outcome.unobserved] += 1

    def _of_answer(self, row: _Row) -> Outcome:
        try:
            answer = read_answer(row.response) if isinstance(row.response, dict) else None
        except RecursionError:
            return self._evaluated(Evidence(unreadable=_TOO_DEEP))
        if answer is not None:
            self.tally.count_usage(answer.usage)
        pattern = None if answer is None else answer.pattern()
        outcome = self._plans.get(pattern)
        if outcome is None:
            outcome = self._evaluated(Evidence() if answer is None else answer_evidence(answer))
            if not outcome.findings:
                self._plans[pattern] = outcome
        return outcome

    def _of_trajectory(self, row: _Row) -> Outcome:
        try:
            evidence = trajectory_evidence(row.trajectory, row.response)
        except RecursionError:
            evidence = Evidence(unreadable=_TOO_DEEP)
        self.tally.count_usage(evidence.usage)
        if evidence.has_trajectory:
            self.tally.count_calls(evidence)
        return self._evaluated(evidence)

    def _evaluated(self, evidence: Evidence) -> Outcome:
        findings, unobserved = _evaluate(evidence, self._ignored)
        if evidence.unreadable is not None:
            detail = {"reason": "what the row recorded cannot be read", "error": evidence.unreadable}
            findings.insert(0, Finding(Check.UNREADABLE, detail))
        bindings = evidence.of_turns if evidence.has_trajectory else None
        return self._outcome(
            findings,
            unobserved,
            is_policy_observed=bindings is not None and evidence.is_call_scope_complete and bindings.is_complete,
            has_success=bindings is not None and any(call.is_successful for call in bindings.matched),
        )

    def _outcome(self, findings: list[Finding], unobserved: int, **more: bool) -> Outcome:
        kept = [finding for finding in findings if finding.check not in self._ignored]
        self.tally.issues.update(finding.check for finding in kept)
        outcome = outcome_of(kept, unobserved, **more)
        return outcome if kept else self._shared.setdefault(outcome, outcome)


def _parse(line: bytes | memoryview) -> _Row:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        # The exact reader knows what the fast one refuses (a lone surrogate, a byte order mark), and says what is wrong.
        value = jsonl.loads(bytes(line).removeprefix(b"\xef\xbb\xbf"))
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__}, not an object") from None  # noqa: TRY004 - a finding
        return msgspec.convert(value, _Row)


def _evaluate(evidence: Evidence, ignored: frozenset[Check]) -> tuple[list[Finding], int]:
    findings: list[Finding] = []
    unobserved = 0
    for check, rule in RULES.items():
        if check in ignored:
            continue
        try:
            found = rule(evidence)
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
            # One strange row must not hide what is wrong with the others.
            found = None
            detail = {"failed_check": check, "error": type(error).__name__}
            findings.append(Finding(Check.EXECUTION_ERROR, detail))
        if found is None:
            unobserved |= BIT[check]
        else:
            findings += found
    return findings, unobserved


def _rollout_id(row: _Row) -> str | None:
    trajectory_id = row.trajectory.get("rollout_id") if isinstance(row.trajectory, dict) else None
    name = row.rollout_id or trajectory_id
    return short(name) if isinstance(name, str) else None


def _index(value: object) -> Name | None:
    # JSON's `true` is no number: a bool is an int, too, but of another type.
    if value is None or (type(value) is int and abs(value) < NUMBER_LIMIT):
        return value
    return short(value)
