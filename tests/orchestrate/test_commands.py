"""Benchmarks that are one command, on one machine: scored, unscored, failed, too long, killed in the middle and told to stop."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.agents.command.result import read_result
from collector.manifest import digest_of
from collector.prepare import experiment_of
from orchestrate.config.load import load_config
from tests.orchestrate.project import Project, tree
from tests.support.processes import marked_pids, wait_for

pytestmark = pytest.mark.timeout(120)

SCORE = """echo '{"reward": 0.25, "solved": 3}' > "$GYM_EVAL_RESULT" """


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 4})
    project.config["services"] = {}
    del project.config["driver"]["policy_model"]
    return project


def add(project: Project, name: str, command: str | list[str], **settings: Any) -> None:
    project.config["driver"]["benchmarks"][name] = {"command": command, **settings}


def rows_of(project: Project, benchmark: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.run_dir / benchmark / "rollouts.jsonl").read_text().splitlines()]


def failures_of(project: Project, benchmark: str) -> list[dict[str, Any]]:
    path = project.run_dir / benchmark / "shards" / "0-of-1" / "rollouts_failures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def job_pid(project: Project) -> int:
    (job,) = json.loads((project.run_dir / "gym-job.json").read_text())["benchmarks"]
    return int(job["job_id"].split(":")[1])


def states(project: Project) -> dict[str, int]:
    (benchmark,) = project.status()["benchmarks"]
    return {name: count for name, count in benchmark["coverage"]["states"].items() if count}


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


def test_another_command_is_another_experiment(project: Project) -> None:
    project.config["job"]["name"] = "mine"
    add(project, "swe", SCORE)
    project.submit("--wait", timeout_s=100)
    before = tree(project.runs)

    add(project, "swe", SCORE + "; true")
    said = project.submit(code=4)

    assert "benchmarks.swe.experiment.agent.command" in said
    assert tree(project.runs) == before


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


#: Stands for srun with Pyxis, which needs root and images: remembers its options and runs what follows them.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >> "$0.said"; shift; done
exec "$@"
"""


def test_a_container_is_started_by_srun_with_the_benchmarks_directory_in_it(project: Project) -> None:
    srun = project.root / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    image = {
        "container": "nvcr.io#nvidia/pytorch:26.01",
        "mounts": ["/code:/code:ro"],
        "env": {"SUITE_TOKEN": "host:SUITE_TOKEN"},
    }
    project.config["driver"] |= image
    add(project, "swe", f'test -n "$SUITE_TOKEN" && {SCORE}')

    env = {"SUITE_TOKEN": "s3cr3t-ab", "PATH": f"{srun.parent}:{os.environ['PATH']}"}
    done = project.gym("submit", str(project.write()), "--wait", timeout_s=100, env=env)

    assert "0.25 (1/1)" in done.stdout, done.stderr + project.logs()
    directory = project.run_dir / "swe"
    said = Path(f"{srun}.said").read_text().splitlines()
    assert said[:4] == ["--overlap", "--nodes=1", "--ntasks=1", "--container-image=nvcr.io#nvidia/pytorch:26.01"]
    assert f"--container-mounts={directory}:{directory},/code:/code:ro" in said
    assert "--container-env=GYM_EVAL_RESULT,NEMO_GYM_BENCH_DIR,SUITE_TOKEN" in said
    assert f"--container-workdir={directory}" in said
    assert "s3cr3t-ab" not in "".join(said)


def test_another_image_is_another_experiment_and_another_mount_is_not(project: Project) -> None:
    def identity() -> str:
        config = load_config(project.config, where=Path("x"), environ={})
        return digest_of({"is": experiment_of(config.runs["swe"])})

    add(project, "swe", SCORE)
    plain = identity()
    project.config["driver"]["container"] = "image"
    contained = identity()
    project.config["driver"]["mounts"] = ["/a"]

    assert plain != contained
    assert contained == identity()


@pytest.mark.parametrize(
    ("benchmark", "driver", "told"),
    [
        pytest.param({}, {}, "driver.benchmarks.swe: needs either run or command", id="neither"),
        pytest.param({"command": "x", "shards": 2}, {}, "a command is one rollout", id="shards"),
        pytest.param({"command": "x", "prepare": {"command": "y"}}, {}, "put it into the command", id="prepare"),
        pytest.param({"command": "x", "timeout_s": 0}, {}, "driver.benchmarks.swe.timeout_s", id="no-time"),
        pytest.param({"command": "  "}, {}, "driver.benchmarks.swe.command", id="empty"),
        pytest.param({"command": "x {services.judge.url}"}, {}, "swe.command: no service 'judge'", id="reference"),
        pytest.param(
            {"command": "x", "export": {"atif": {"agent_version": "1"}}}, {}, "is a command, which leaves no answers", id="atif"
        ),
        pytest.param({"command": "x"}, {"mounts": ["/a"]}, "driver.mounts: is for driver.container", id="mounts"),
        pytest.param(
            {"run": {"input_jsonl_fpath": "x", "agent": {"type": "command", "command": "x"}}},
            {},
            "write driver.benchmarks.swe.command instead of run",
            id="as-an-agent",
        ),
    ],
)
def test_what_a_command_cannot_be_is_one_line(
    project: Project, benchmark: dict[str, Any], driver: dict[str, Any], told: str
) -> None:
    project.config["driver"]["benchmarks"]["swe"] = benchmark
    project.config["driver"] |= driver

    said = project.submit(code=2)

    assert told in said
    assert len(said.splitlines()) == 1
    assert not project.runs.exists()


def test_the_yaml_in_the_reference_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text().partition("### A benchmark that is one command")[2]
    command, dataset = (yaml.safe_load(block.partition("```")[0]) for block in page.split("```yaml\n")[1:3])
    command["driver"]["benchmarks"] |= dataset
    model = {"type": "external", "url": "http://e/v1", "served_model_name": "m"}
    data = command | {"services": {"model": model}, "compute": {"here": {"type": "local"}}, "job": {"output_path": "runs"}}

    loaded = load_config(data, where=Path("x"), environ={"HF_TOKEN": "x"})

    assert set(loaded.runs) == {"swe", "code", "math"}


def test_a_dry_run_of_a_command_runs_nothing(project: Project) -> None:
    add(project, "swe", f"touch {project.root}/ran")
    project.write()
    before = tree(project.root)

    project.submit("--dry-run")

    assert tree(project.root) == before
