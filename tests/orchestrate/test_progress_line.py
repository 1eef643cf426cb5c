"""What a running collection says of itself."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from collector.outcomes import RolloutState
from collector.state.coverage import Coverage
from orchestrate.cli.tables import score_of
from orchestrate.jobs.progress import LineProgress, Tally, roughly
from tests.orchestrate.project import Project
from tests.support.model_server import ModelServer


@pytest.mark.parametrize(
    ("tally", "text"),
    [
        pytest.param(Tally(expected=8, done=0, measured=0), "0/8 done", id="before-the-first"),
        pytest.param(
            Tally(expected=100, done=40, measured=38, mean=0.5, rate=2.0),
            "40/100 done, 2/s, about 30 s left, mean reward 0.5 (38/100)",
            id="under-way",
        ),
        pytest.param(
            Tally(expected=10, done=7, measured=7, mean=1.0, failing={"transport_timeout": 2, "agent_run_error": 1}),
            "7/10 done, mean reward 1 (7/10), failing 3 (agent_run_error 1, transport_timeout 2)",
            id="failures-by-kind",
        ),
        pytest.param(
            Tally(expected=4, done=4, measured=4, mean=0.25, rate=1.0), "4/4 done, 1/s, mean reward 0.25 (4/4)", id="over"
        ),
    ],
)
def test_a_mean_is_shown_with_its_coverage_and_failures_with_their_kinds(tally: Tally, text: str) -> None:
    assert str(tally) == text


@pytest.mark.parametrize(
    ("measured", "rewards", "is_expected_known", "text"),
    [
        pytest.param(90, (80.0, 0.0, 1.0), True, "0.8889 (90/100, bounds 0.8 to 0.9)", id="incomplete"),
        pytest.param(100, (80.0, 0.0, 1.0), True, "0.8 (100/100)", id="complete"),
        pytest.param(90, (180.0, 0.0, 10.0), True, "2 (90/100)", id="rewards-beyond-1"),
        pytest.param(90, (80.0, 0.0, 1.0), False, "0.8889 (90/?)", id="expected-unknown"),
        pytest.param(0, (None, None, None), True, "no score (0/100)", id="nothing-measured"),
    ],
)
def test_a_score_has_bounds_while_rollouts_are_missing_and_rewards_lie_in_0_to_1(
    measured: int, rewards: tuple[float | None, float | None, float | None], is_expected_known: bool, text: str
) -> None:
    total, low, high = rewards
    states = {RolloutState.MEASURED: measured, RolloutState.FAILED: 100 - measured}
    coverage = Coverage(
        benchmark="b", run_id="r", expected=100, states=states, reward_sum=total, reward_min=low, reward_max=high
    )

    assert score_of(coverage, is_expected_known=is_expected_known) == text


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (59, "59 s"), (600, "10 min"), (12_000, "3 h 20 min")])
def test_an_estimate_is_as_exact_as_it_may_look(seconds: float, words: str) -> None:
    assert roughly(seconds) == words


def test_a_log_is_told_once_that_everything_is_done(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=2)
    with ModelServer(tmp_path) as server:
        command = ["run", "--input", "0.jsonl", "--output", "out/r.jsonl", "--model", "test-model", "--model-url",
                   server.base_url, "--verifier", "echoed"]  # fmt: skip
        first, again = project.gym(*command), project.gym(*command)

    assert [first.stderr.count("/2 done"), again.stderr.count("/2 done")] == [2, 1], first.stderr + again.stderr
    assert "2/2 done, mean reward" in again.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), "\r\x1b[Khello"), (io.StringIO(), "hello\n")])
def test_a_terminal_line_is_rewritten_in_place_and_a_log_gets_plain_lines(stream: io.StringIO, shown: str) -> None:
    LineProgress(stream)._show("hello")

    assert stream.getvalue() == shown
