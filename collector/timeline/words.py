"""A timeline in words: what the next resume would do with a rollout, and the lines a person reads."""

from __future__ import annotations

from datetime import datetime

from collector.outcomes import FailureClass
from collector.settings import RetrySettings
from collector.state.codes import Past
from collector.state.retry import COMPLETED, CURABLE, has_budget, is_exhausted_by_interruption, is_terminal
from collector.text.visible import visible
from collector.timeline.views import AttemptEnd, AttemptView, FailureView, SessionView, Timeline


def next_step(past: Past, retry: RetrySettings, *, is_in_flight: bool = False) -> str:
    """What the next resume under ``retry`` does with a rollout of this past, and which setting would change that. Pure."""
    if past.state in COMPLETED:
        return f"nothing: {past.state}"
    if is_in_flight:
        return "it is in flight now; a resume after that session decides by its outcome"
    if is_terminal(past, retry):
        return f"nothing: {_terminal_words(past, retry)}"
    if not has_budget(past, retry):
        return f"nothing: attempts exhausted ({_used(past)}); {_cures(past, retry)}"
    return f"would be dispatched as attempt {past.dispatched}"


def _terminal_words(past: Past, retry: RetrySettings) -> str:
    if past.failure_class == FailureClass.SKIPPED:
        return "the sample was skipped for good"
    words = f"the failure is terminal ({past.failure_class})"
    if past.failure_class in CURABLE and not retry.retry_terminal_timeouts:
        return f"{words}; retry.retry_terminal_timeouts would open it again"
    return words


def _used(past: Past) -> str:
    return f"{past.dispatched} dispatched, {past.interrupted} interrupted"


def _cures(past: Past, retry: RetrySettings) -> str:
    if retry.max_interruptions is None:
        cure = f"raise retry.max_attempts above {past.dispatched}"
        if is_exhausted_by_interruption(past, retry):
            cure += f", or give interruptions an allowance of their own: retry.max_interruptions of {past.interrupted} or more"
        return cure
    cures: list[str] = []
    if past.recorded >= retry.max_attempts:
        cures.append(f"raise retry.max_attempts above {past.recorded}")
    if past.interrupted > retry.max_interruptions:
        cures.append(f"raise retry.max_interruptions to {past.interrupted} or more")
    return " and ".join(cures)


def render(timeline: Timeline) -> list[str]:
    """The lines a person reads: state first, then each attempt, then what comes next."""
    lines = [f"{timeline.rollout_id}  {timeline.state}"]
    for attempt in timeline.attempts:
        lines.append(f"attempt {attempt.number}  {attempt.dispatched_at}  {_session(attempt.session)}")
        lines += [f"    {words}" for words in _end_words(attempt)]
    if not timeline.attempts:
        lines.append("never dispatched")
    if timeline.is_suspect:
        lines.append("suspect: in flight each time its collector died, and never with an outcome")
    lines.append(f"next resume  {timeline.next_step}")
    # What a server said of a failure may be anything.
    return list(map(visible, lines))


def _session(session: SessionView) -> str:
    job = f", job {session.job_id}" if session.job_id else ""
    if session.restart_count:
        job += f" restart {session.restart_count}"
    lock = f", lock {session.lock}" if session.lock else ""
    return f"session {session.number} (process {session.pid} on {session.host}{job}{lock})"


def _end_words(attempt: AttemptView) -> list[str]:
    reward = f", reward {attempt.reward:g}" if attempt.reward is not None else ""
    took = _took(attempt)
    cut = ", answer cut by the token limit" if attempt.truncated else ""
    recovered = ", recovered by a later session" if attempt.recovered else ""
    words = [f"{attempt.end}{reward}{took}{cut}{recovered}{f': {attempt.remark}' if attempt.remark else ''}"]
    if attempt.failure is not None:
        words.append(_failure(attempt.failure))
    if attempt.judge is not None:
        words.append(str(attempt.judge))
    return words


def _took(attempt: AttemptView) -> str:
    if attempt.elapsed_s is not None:
        return f" after {attempt.elapsed_s:g} s"
    end = attempt.ended_at if attempt.ended_at is not None else attempt.session.ended_at
    if end is None or attempt.recovered or attempt.end is AttemptEnd.IN_FLIGHT:
        return ""
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(attempt.dispatched_at)).total_seconds()
    except ValueError:
        return ""
    return f" within {seconds:.1f} s"


def _failure(failure: FailureView) -> str:
    facts = [failure.failure_class]
    if failure.kind is not None and failure.kind != failure.failure_class:
        facts.append(failure.kind)
    if failure.http_status is not None:
        facts.append(f"HTTP {failure.http_status}")
    if failure.exception_type is not None:
        facts.append(failure.exception_type)
    if failure.stage is not None:
        facts.append(f"in {failure.stage}")
    facts.append("terminal" if failure.terminal else "may be tried again")
    reason = " ".join(failure.reason.split())
    return f"{', '.join(facts)}: {reason}"
