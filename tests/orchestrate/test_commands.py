"""Benchmarks that are one command, on one machine: what is recorded of them, and what they are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from collector.agents.command.result import read_result
from tests.orchestrate.commands import SCORE, add, failures_of, rows_of, states, without_model
from tests.orchestrate.project import Project, tree

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return without_model(tmp_path)


def test_a_commands_number_is_the_benchmarks_score(project: Project) -> None:
    add(project, "swe", SCORE)

    said = project.submit("--wait", timeout_s=100)

    assert "0.25 (1/1)" in said
    (row,) = rows_of(project, "swe")
    assert (row["reward"], row["solved"], row["command"]) == (0.25, 3, SCORE)


def test_a_command_without_a_result_is_completed_and_has_no_score(project: Project) -> None:
    add(project, "swe", ["true"])

    said = project.submit("--wait", timeout_s=100)

    assert "no score (0/1)" in said
    (row,) = rows_of(project, "swe")
    assert "reward" not in row
    assert states(project) == {"unscored": 1}


def test_a_command_that_fails_is_not_begun_again_and_shows_its_last_words(project: Project) -> None:
    add(project, "swe", "echo first; echo out of luck >&2; exit 3")

    said = project.submit("--wait", code=7, timeout_s=100)

    (failure,) = failures_of(project, "swe")
    assert "agent_run_error 1" in said
    assert failure["_ng_failure_exit_code"] == 3
    assert failure["failure_reason"] == "the command ended with exit code 3; its last words: first | out of luck"
    assert "0 submitted" not in project.submit(code=0)
    assert len(failures_of(project, "swe")) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("{", "not JSON", id="no-json"),
        pytest.param("[1]", "not a JSON object", id="a-list"),
        pytest.param('{"score": 1}', "has no reward", id="no-reward"),
        pytest.param('{"reward": true}', "reward is not a finite number", id="a-truth"),
        pytest.param('{"reward": 1e999}', "not JSON", id="too-large"),
        pytest.param('{"reward": 1, "_ng_session": 4}', "_ng_session", id="reserved"),
        pytest.param('{"reward": 1, "command": 4}', "command", id="a-key-of-the-row"),
        pytest.param('{"reward": 1, "note": "fine"}', "no finite numbers: note", id="a-text"),
    ],
)
def test_a_result_that_is_none_is_a_failure_and_never_a_score(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are compared
        read_result(path)

    assert told in str(caught.value)


def test_a_broken_result_is_recorded_with_its_reason(project: Project) -> None:
    add(project, "swe", 'echo nonsense > "$GYM_EVAL_RESULT"')

    project.submit("--wait", code=7, timeout_s=100)

    (failure,) = failures_of(project, "swe")
    assert failure["failure_kind"] == "verifier_error"
    assert "its result cannot be used: it is not JSON" in failure["failure_reason"]
    assert "reward" not in failure


def test_commands_and_runs_share_a_packed_job(project: Project) -> None:
    project.config["services"] = {"policy": project.service()}
    project.config["driver"]["policy_model"] = "policy"
    project.config["job"] |= {"pack": 3, "pack_at_once": 3}
    project.benchmark("math", tasks=4)
    add(project, "one", SCORE)
    add(project, "two", "echo words; " + SCORE)

    said = project.submit("--wait", timeout_s=100)

    assert said.count("0.25 (1/1)") == 2
    assert "0.75 (4/4)" in said
    assert "words" in project.gym("logs", str(project.run_dir), "--service", "command", "--benchmark", "two").stdout


def test_a_command_knows_the_model_its_place_and_its_variables(project: Project) -> None:
    project.config["services"] = {"policy": project.service()}
    project.config["driver"] |= {"policy_model": "policy", "env": {"SUITE_TOKEN": "host:SUITE_TOKEN"}}
    ask = (
        'import json, os, urllib.request; e = os.environ; b = e["NEMO_GYM_POLICY_BASE_URL"]\n'
        'd = json.dumps({"model": e["NEMO_GYM_POLICY_MODEL_NAME"], "messages": [{"role": "user", "content": "hi"}]}).encode()\n'
        'h = {"Content-Type": "application/json", "Authorization": "Bearer " + e["NEMO_GYM_POLICY_API_KEY"]}\n'
        'r = urllib.request.urlopen(urllib.request.Request(b + "/chat/completions", d, h))\n'
        'ok = r.status == 200 and os.getcwd() == e["NEMO_GYM_BENCH_DIR"] and len(e["SUITE_TOKEN"]) == 9\n'
        'assert "{services.policy.url}" == b or b == os.sys.argv[1]\n'
        'open(e["GYM_EVAL_RESULT"], "w").write(json.dumps({"reward": float(ok)}))\n'
        'print("token", e["SUITE_TOKEN"][::-1])'
    )
    add(project, "a b/c", [sys.executable, "-c", ask, "{services.policy.url}"])

    done = project.gym("submit", str(project.write()), "--wait", timeout_s=100, env={"SUITE_TOKEN": "s3cr3t-ab"})

    assert done.returncode == 0, done.stderr + project.logs()
    (row,) = rows_of(project, "a+20b+2Fc")
    assert row["reward"] == 1.0
    assert all(b"s3cr3t-ab" not in (content or b"") for content in tree(project.run_dir).values())


def test_a_credential_in_the_last_words_is_masked(project: Project) -> None:
    project.config["driver"]["env"] = {"SUITE_TOKEN": "host:SUITE_TOKEN"}
    add(project, "swe", 'echo "wrong token $SUITE_TOKEN"; exit 1')

    done = project.gym("submit", str(project.write()), "--wait", timeout_s=100, env={"SUITE_TOKEN": "s3cr3t-ab"})

    (failure,) = failures_of(project, "swe")
    assert failure["failure_reason"].endswith("wrong token **********")
    assert "s3cr3t-ab" not in done.stdout + done.stderr


def test_what_a_command_says_is_in_a_log_of_its_own(project: Project) -> None:
    add(project, "swe", "seq 1 200000; exit 1")
    project.submit("--wait", code=7, timeout_s=100)

    shown = project.gym("logs", str(project.run_dir), "--service", "command", "-n", "2").stdout

    assert shown.splitlines()[1:3] == ["199999", "200000"]
