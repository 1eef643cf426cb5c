"""Notices an endpoint that answers nobody, before it costs the tasks their attempts.

| the outcome | says of the endpoint |
| --- | --- |
| completed, failed in grading, failed for good and delivered | it answers: what was suspected is void |
| never reached; 401, 403, 404, 405, 407, 429, 503 | it does not; one task is proof while nobody was answered |
| other 5xx, dropped connections, time limits | perhaps; several tasks are proof |
| anything else (a bug of a plug-in, an unusable reply) | nothing |

A judge that grades nobody is noticed likewise: when it failed for several tasks and gave no verdict between, no task's last
attempt is spent on it. Failures alike in a row, of whatever sort, stop a run too, if they go on and on.
"""

from __future__ import annotations

from enum import Enum, auto

from collector.outcomes import Completed, Delivery, Failure, FailureClass, FailureKind, Omitted, Stage
from collector.text.counted import counted

#: So many failures alike in a row, with no answer between, stop a run whatever they are.
_LEAST_IN_A_ROW = 20
#: So many tasks have to fail before anything but themselves is held to be the reason.
_LEAST_TASKS = 5
_NOT_FOUND = 404
_NEVER_THE_TASK = frozenset({401, 403, _NOT_FOUND, 405, 407, 429, 503})
_PERHAPS_THE_TASK = frozenset(
    {FailureKind.TRANSPORT_PEER_DROP, FailureKind.TRANSPORT_TIMEOUT, FailureKind.PROVIDER_UNAVAILABLE}
)


class Sign(Enum):
    """What one outcome says of the endpoint."""

    ANSWERS = auto()
    BROKEN = auto()
    DOUBTFUL = auto()
    NOTHING = auto()


def sign_of(outcome: Completed | Failure | Omitted) -> Sign:
    """What ``outcome`` says of the endpoint that was asked."""
    if not isinstance(outcome, Failure) or outcome.stage is Stage.VERIFICATION:
        return Sign.ANSWERS
    if outcome.terminal:
        return Sign.ANSWERS if outcome.delivery is Delivery.DELIVERED else Sign.NOTHING
    status = outcome.http_status
    if outcome.delivery is Delivery.NOT_SENT or status in _NEVER_THE_TASK:
        return Sign.BROKEN
    if outcome.kind in _PERHAPS_THE_TASK or (status is not None and status >= 500):
        return Sign.DOUBTFUL
    return Sign.NOTHING


class CircuitBreaker:
    """Counts what happened since the endpoint last answered, and says who has to wait for its next answer."""

    def __init__(self, parallel: int) -> None:
        # Everything in flight when an endpoint dies fails once: that alone must not stop a run that can wait for it.
        self._limit = max(_LEAST_IN_A_ROW, 2 * parallel)
        self._has_answered = False
        self._is_refused = False
        self._tasks: set[int] = set()
        #: Tasks whose judge failed since an answer was last graded.
        self._ungraded: set[int] = set()
        self._alike: tuple[object, ...] | None = None
        self._alike_tasks: set[int] = set()
        self._count = 0
        self._last: Failure | None = None
        #: Why to stop, in the words of what fails, once it is time.
        self.verdict: str | None = None

    @property
    def cure(self) -> str:
        """What to do about the verdict."""
        if not self.is_graders:
            return "Mend the endpoint, then resume: what is done is kept."
        cure = "Mend the verifier or its judge, then resume: what is done is kept."
        # A resume asks the model again, which is seldom wanted after a judge was mended.
        if self._last is not None and self._last.failure_class == FailureClass.JUDGE_FAILED:
            return f"{cure} To judge the answers that are kept and ask for no new one: gym eval reverify --judge-failed-only."
        return cure

    @property
    def is_lost(self) -> bool:
        """Whether nobody was answered, and the last reply was that there is nothing at this address."""
        return self._last is not None and self._last.http_status == _NOT_FOUND and not self._has_answered

    @property
    def is_graders(self) -> bool:
        """Whether the verdict is about who grades, and not about who answers."""
        return self._last is not None and self._last.stage is Stage.VERIFICATION

    @property
    def is_suspicious(self) -> bool:
        """Whether anything happened since the last answer or verdict for which somebody may have to wait."""
        return bool(self._tasks or self._ungraded)

    def see(self, outcome: Completed | Failure | Omitted, index: int) -> None:
        """Take the outcome of an attempt at rollout ``index`` into account."""
        sign = sign_of(outcome)
        if sign is Sign.ANSWERS:
            self._has_answered, self._is_refused = True, False
            self._tasks.clear()
        elif sign is not Sign.NOTHING:
            self._is_refused |= sign is Sign.BROKEN
            _note(self._tasks, index)
        if isinstance(outcome, Completed):
            self._ungraded.clear()
        elif isinstance(outcome, Failure) and outcome.failure_class == FailureClass.JUDGE_FAILED:
            _note(self._ungraded, index)
        if isinstance(outcome, Failure) and not outcome.terminal:
            self._count_alike(outcome, sign, index)
        elif sign is Sign.ANSWERS:
            self._alike, self._count = None, 0

    def must_wait(self, attempts_left: int) -> bool:
        """Whether a rollout with so many attempts left has to wait until the endpoint answers, or the judge grades, somebody.

        An endpoint that never answered in this session gets no further attempt of anything; one that did, and a judge, get
        nobody's last.
        """
        if len(self._ungraded) >= _LEAST_TASKS and attempts_left <= 1:
            return True
        is_several = len(self._tasks) >= _LEAST_TASKS
        if self._has_answered:
            return is_several and attempts_left <= 1
        return is_several or self._is_refused

    def trip(self) -> None:
        """Decide to stop: failures alike go on and on, or nobody is left whose answer could be waited for."""
        how = f"{counted(self._count, 'attempt')} in a row failed alike" if self._count > 1 else "the last attempt failed"
        self.verdict = self.verdict or f"{how}: {self._last.reason if self._last else 'no answer came'}"

    def _count_alike(self, failure: Failure, sign: Sign, index: int) -> None:
        # A dying server says 502, 503 and nothing at all in turn: for the count that is one story.
        is_endpoint = sign in {Sign.BROKEN, Sign.DOUBTFUL}
        alike = (Sign.BROKEN,) if is_endpoint else (failure.kind, failure.failure_class, failure.http_status, failure.stage)
        if alike != self._alike:
            self._alike, self._count = alike, 0
            self._alike_tasks.clear()
        self._count, self._last = self._count + 1, failure
        _note(self._alike_tasks, index)
        # A few poison tasks with many attempts each fail alike on their own.
        if self._count >= self._limit and len(self._alike_tasks) >= _LEAST_TASKS:
            self.trip()


def _note(tasks: set[int], index: int) -> None:
    if len(tasks) < _LEAST_TASKS:
        tasks.add(index)
