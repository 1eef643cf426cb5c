"""Benchmarks that are one command and do not end by themselves: too long, killed in the middle, told to stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.orchestrate.commands import SCORE, add, failures_of, job_pid, rows_of, states, without_model
from tests.orchestrate.project import Project
from tests.support.processes import marked_pids, wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return without_model(tmp_path)


def test_what_a_command_left_in_a_session_of_its_own_ends_with_it(project: Project) -> None:
    mark = f"COMMAND_TEST={project.root}"
    add(project, "swe", f"export {mark}; setsid bash -c 'setsid sleep 1000 & sleep 1000' & sleep 0.5; {SCORE}")

    said = project.submit("--wait", timeout_s=100)

    assert "0.25 (1/1)" in said
    assert marked_pids(mark) == []


@pytest.mark.parametrize("how", ["", "trap '' TERM; "], ids=["heeds", "ignores-sigterm"])
def test_a_command_that_takes_too_long_ends_with_all_it_started(project: Project, how: str) -> None:
    mark = f"COMMAND_TEST={project.root}"
    add(project, "swe", f"export {mark}; {how}sleep 1000 & sleep 1000", timeout_s=1)

    project.submit("--wait", code=7, timeout_s=100)

    (failure,) = failures_of(project, "swe")
    assert (failure["failure_kind"], failure["_ng_failure_class"]) == ("agent_timeout", "timeout_exceeded")
    assert "not done after 1 s (timeout_s)" in failure["failure_reason"]
    assert marked_pids(mark) == []


def test_a_raised_limit_goes_on_with_the_same_run(project: Project) -> None:
    add(project, "swe", SCORE, timeout_s=50)
    project.submit("--wait", timeout_s=100)

    project.config["driver"]["benchmarks"]["swe"]["timeout_s"] = 70
    said = project.submit("--wait", timeout_s=100)

    assert "1 final" in said


def test_a_killed_job_leaves_nothing_of_its_command_and_the_next_begins_it_anew(project: Project) -> None:
    mark = f"COMMAND_TEST={project.root}"
    seen = project.root / "seen"
    first = f"export {mark}; echo begun >> {seen}; sleep 1000 & sleep 1000"
    add(project, "swe", f"if [ -e {seen} ]; then {SCORE}; else {first}; fi")
    project.submit()
    wait_for(lambda: seen.exists() and len(marked_pids(mark)) >= 2)

    os.kill(job_pid(project), signal.SIGKILL)
    wait_for(lambda: not marked_pids(mark), explain=lambda: str(marked_pids(mark)))
    said = project.submit("--wait", timeout_s=100)

    assert "0.25 (1/1)" in said
    assert failures_of(project, "swe") == []
    (row,) = rows_of(project, "swe")
    assert row["_ng_attempt_index"] == 1


@pytest.mark.parametrize("ending", ["exit 0", "exit 9", "sleep 1000"], ids=["ends-well", "fails", "stays"])
def test_a_command_that_is_told_to_stop_is_cut_off_and_not_failed(project: Project, ending: str) -> None:
    mark = f"COMMAND_TEST={project.root}"
    seen = project.root / "seen"
    first = f"export {mark}; trap 'echo told >> {seen}; {ending}' TERM; touch {seen}; while true; do sleep 0.1; done"
    add(project, "swe", f"if [ -e {seen} ]; then {SCORE}; else {first}; fi")
    project.submit()
    wait_for(seen.exists)

    os.kill(job_pid(project), signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{job_pid(project)}").exists())

    assert seen.read_text().startswith("told\n")
    assert marked_pids(mark) == []
    assert states(project) == {"unknown": 1}
    assert failures_of(project, "swe") == []
    assert "0.25 (1/1)" in project.submit("--wait", timeout_s=100)


def test_a_command_that_finishes_while_its_job_is_told_to_stop_keeps_its_score(project: Project) -> None:
    seen = project.root / "seen"
    score = """printf "{\\"reward\\": 1}" > "$GYM_EVAL_RESULT"; exit 0"""
    add(project, "swe", f"trap '{score}' TERM; touch {seen}; while true; do sleep 0.1; done")
    project.submit()
    wait_for(seen.exists)

    os.kill(job_pid(project), signal.SIGTERM)

    wait_for(lambda: states(project) == {"measured": 1}, explain=project.logs)


def test_a_command_whose_model_dies_is_begun_anew_with_it(project: Project) -> None:
    seen = project.root / "seen"
    project.config["services"] = {"policy": project.service(exit_after=2)}
    project.config["driver"]["policy_model"] = "policy"
    body = '{"model": "test-model", "messages": [{"role": "user", "content": "hi"}]}'
    ask = f"curl -s -H 'Content-Type: application/json' -d '{body}' $NEMO_GYM_POLICY_BASE_URL/chat/completions; exit 7"
    add(project, "swe", f"if [ -e {seen} ]; then {SCORE}; else touch {seen}; {ask}; fi")

    said = project.submit("--wait", timeout_s=100)

    assert "0.25 (1/1)" in said
    assert failures_of(project, "swe") == []
    assert "the services are started again" in project.logs()
