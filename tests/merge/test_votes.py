"""Majority votes of all tasks at once are those of each task by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge.metrics import passes
from merge.rows.numbers import NO_ANSWER, NO_ROW

VOTES = st.tuples(st.sampled_from([NO_ANSWER, NO_ROW, 5, 6, -3]), st.sampled_from([0.0, 1.0]))


@given(st.lists(st.lists(VOTES, min_size=1, max_size=8), min_size=1, max_size=12))
def test_votes_counted_together_are_those_of_each_task(tasks: list[list[tuple[int, float]]]) -> None:
    answers = np.array([answer for task in tasks for answer, _ in task])
    rewards = np.array([reward for task in tasks for _, reward in task])
    numbers = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])

    with pytest.MonkeyPatch.context() as patch:
        # As it is with many thousand tasks.
        patch.setattr(passes, "_TASKS_AT_ONCE", 3)
        together = passes._running_votes(passes._samples(numbers, rewards), answers)

    assert together.tolist() == [vote for task in tasks for vote in passes._votes_of_task(task)]
