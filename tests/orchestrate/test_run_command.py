"""``gym eval run``: one benchmark here and now, its score with coverage, its exit code, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrate.project import Project, tree
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for


class Here:
    """A user's folder with a dataset and a running model server."""

    def __init__(self, root: Path, server: ModelServer) -> None:
        self.project = Project(root / "user", {"type": "local"})
        self.server = server
        self.output = self.project.root / "out" / "r.jsonl"

    def arguments(self, tasks: int = 4, marks: str = "") -> list[str]:
        self.project.config["driver"]["benchmarks"] = {}
        self.project.benchmark("t", tasks=tasks, marks=marks)
        return ["run", "-i", "0.jsonl", "-o", "out/r.jsonl", "-m", "test-model", "--model-url", self.server.base_url]

    def run(self, *more: str, tasks: int = 4, marks: str = "") -> subprocess.CompletedProcess[str]:
        return self.project.gym(*self.arguments(tasks, marks), "--verifier", "echoed", *more)


@pytest.fixture
def here(tmp_path: Path, model_server: ModelServer) -> Here:
    return Here(tmp_path, model_server)


def test_a_run_ends_with_its_score_its_coverage_and_its_files(here: Here) -> None:
    done = here.run("--num-repeats", "2", "--temperature", "0.5")

    assert done.returncode == 0, done.stderr
    assert "0.75 (8/8)" in done.stdout
    for name in ("r.jsonl", "r_coverage.json", "r_aggregate_metrics.json"):
        assert str(here.output.with_name(name)) in done.stdout
    rows = [json.loads(line) for line in here.output.read_text().splitlines()]
    assert len(rows) == 8
    assert rows[0]["responses_create_params"]["temperature"] == 0.5
    assert not (here.project.root / "outputs").exists()


def test_a_score_of_cut_answers_says_so_wherever_it_is_told(here: Here) -> None:
    """``aggregate`` and ``status`` said that the token limit cut answers; ``run``, whose score it was first, did not."""
    ran = here.run(marks="[[mode: length]]")
    graded = here.project.gym("reverify", "--rollouts", "out/r.jsonl", "-o", "out/s.jsonl")
    merged = here.project.gym("aggregate", "out/r.jsonl", "-o", "out/m.jsonl")

    for done in (ran, graded, merged):
        assert done.returncode == 0, done.stderr
        assert "measured 4\nnote      4 answers cut by the token limit\n" in done.stdout


def test_a_finished_run_asks_nothing_again(here: Here) -> None:
    here.run()
    before = here.server.stats()["total"]

    done = here.run("--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["measured"] == 4
    assert here.server.stats()["total"] == before


@pytest.mark.parametrize(
    ("marks", "code", "told"),
    [
        pytest.param("[[mode: 400]]", 7, "nothing was measured", id="nothing-measured"),
        pytest.param("", 0, "", id="complete"),
    ],
)
def test_the_exit_code_says_how_it_ended(here: Here, marks: str, code: int, told: str) -> None:
    done = here.run(marks=marks)

    assert done.returncode == code, done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(
    ("cut", "marks", "is_told"),
    [("/v1", "", True), ("", "[[mode: 404]]", False)],
    ids=["without-its-end", "another-reason"],
)
def test_an_address_without_its_end_is_told(here: Here, cut: str, marks: str, is_told: bool) -> None:
    done = here.run("--model-url", here.server.base_url.removesuffix(cut), marks=marks)

    assert done.returncode == 5
    assert ("Most servers answer below /v1, which the URL lacks. Mend the endpoint" in done.stderr) == is_told


def test_another_model_on_the_same_path_is_refused_and_changes_nothing(here: Here) -> None:
    here.run()
    before = tree(here.output.parent)

    done = here.run("-m", "other")

    assert done.returncode == 4
    assert 'policy_model_name: saved "test-model", now "other"' in done.stderr
    assert tree(here.output.parent) == before


def test_ctrl_c_keeps_what_is_done_and_a_repetition_goes_on(here: Here) -> None:
    arguments = [*here.arguments(8, "[[delay: 0.3]]"), "--verifier", "echoed", "--concurrency", "1"]
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", *arguments]
    running = subprocess.Popen(
        command,
        cwd=here.project.root,
        env=here.project.environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    wait_for(lambda: len(here.server.requests()) >= 3)

    os.kill(running.pid, signal.SIGINT)
    said = running.communicate(timeout=30)[1]
    again = here.project.gym(*arguments)

    assert running.returncode == 6
    assert "interrupted" in said
    assert again.returncode == 0, again.stderr
    assert set(here.server.counts().values()) == {1}


def test_settings_come_from_a_file_then_flags_then_overrides(here: Here) -> None:
    config = here.project.root / "run.yaml"
    config.write_text("verifier: {type: echoed}\nnum_repeats: 3\nresponses_create_params: {temperature: 0.1, top_p: 0.9}\n")

    done = here.project.gym(*here.arguments(2), "--config", "run.yaml", "--temperature", "0.2", "num_repeats=2", "+limit=1")

    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in here.output.read_text().splitlines()]
    assert len(rows) == 2
    assert {row["responses_create_params"]["top_p"] for row in rows} == {0.9}
    assert {row["responses_create_params"]["temperature"] for row in rows} == {0.2}


def test_the_key_comes_from_the_environment_and_is_in_no_file(tmp_path: Path) -> None:
    directory = tmp_path / "server"
    directory.mkdir()
    with ModelServer(directory, api_key="sk-PROBE") as server:
        here = Here(tmp_path, server)
        arguments = [*here.arguments(2), "--verifier", "echoed", "--model-api-key-env", "MY_KEY"]

        done = here.project.gym(*arguments, env={"MY_KEY": "sk-PROBE"})
        missing = here.project.gym(*arguments)

    assert done.returncode == 0, done.stderr
    assert [name for name, content in tree(here.project.root).items() if content and b"sk-PROBE" in content] == []
    assert "sk-PROBE" not in done.stdout + done.stderr
    assert missing.returncode == 2
    assert "there is no variable MY_KEY" in missing.stderr


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        pytest.param(["--verifier", "exact"], 2, "unknown verifier 'exact'", id="verifier"),
        pytest.param(
            ["+retry.max_attempt=1"], 2, "retry.max_attempt: unknown key. Did you mean 'max_attempts'?", id="nested-key"
        ),
        pytest.param(
            ["--num-repeats", "0"],
            2,
            "run: num_repeats: input should be greater than or equal to 1 (--num-repeats).",
            id="form",
        ),
        pytest.param(["++num_repeats={a:0}"], 2, "run: num_repeats.a: input should be greater than or", id="form-of-a-map"),
        pytest.param(["--verifier", "python:no_such_module:f"], 2, "no_such_module", id="function"),
        pytest.param(["--concurrency", "0"], 2, "(--concurrency)", id="flag-is-named"),
        pytest.param(["-i", "nope.jsonl"], 3, "there is no such dataset", id="dataset"),
        pytest.param(["--limit", "0"], 2, "(--limit)", id="no-rows"),
        pytest.param(["-o", "out/r.txt"], 2, "not the name of a .jsonl file", id="output"),
        pytest.param(["limit=3"], 2, "+limit=3", id="hydras-hint"),
    ],
)
def test_what_cannot_work_is_one_line_and_creates_nothing(here: Here, more: list[str], code: int, told: str) -> None:
    done = here.run(*more)

    assert done.returncode == code
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not here.output.parent.exists()


def test_the_yaml_of_a_submission_is_named_as_one(here: Here) -> None:
    here.arguments()

    done = here.project.gym("run", "--config", str(here.project.write()))

    assert done.returncode == 2
    assert "this is the YAML of a submission" in done.stderr
    assert "gym eval submit" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_lists_another_model_is_warned_about(tmp_path: Path) -> None:
    with ModelServer(tmp_path, listed_model="step-3000") as server:
        done = Here(tmp_path, server).run()

    assert done.returncode == 0, done.stderr
    assert "warning: the server lists step-3000 and not test-model" in done.stderr


def test_a_server_that_lists_the_model_is_not_warned_about(here: Here) -> None:
    assert "warning" not in here.run().stderr
