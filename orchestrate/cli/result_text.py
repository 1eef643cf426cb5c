"""What a result says of itself: its score with what it rests on, and what a reader of the score should know besides."""

from __future__ import annotations

from collector.state.coverage import Coverage
from collector.text.counted import counted
from orchestrate.cli.tables import kinds_of, score_of, states_of


def result_lines(coverage: Coverage, *, is_expected_known: bool = True) -> list[str]:
    """Score, states, notes and failures, a line each; a zero or a cut answer among them is not to be found by surprise."""
    lines = [f"score     {score_of(coverage, is_expected_known=is_expected_known)}", f"rollouts  {states_of(coverage)}"]
    lines += [f"note      {note}" for note in notes_of(coverage)]
    if coverage.failures_by_kind:
        lines.append(f"failures  {kinds_of(coverage.failures_by_kind)}")
    return lines


def notes_of(coverage: Coverage) -> list[str]:
    """What happened to rollouts that the states do not tell."""
    lines: list[str] = []
    if coverage.exhausted_by_interruption:
        lines.append(f"{coverage.exhausted_by_interruption} ran out of attempts by interruptions alone")
    if coverage.suspects:
        lines.append(f"in flight each time their collector died: {', '.join(coverage.suspects)}; see gym eval why")
    if coverage.truncated:
        lines.append(f"{counted(coverage.truncated, 'answer')} cut by the token limit")
    return lines


def warnings_of(coverage: Coverage) -> list[str]:
    """The same, and whether anything vouches for the rows."""
    unverified = [] if coverage.identity_verified else ["the saved work was taken over unverified"]
    return [*notes_of(coverage), *unverified]
