"""One meaning of RUN: whichever way a run is named, every command finds the same one, and says alike what is not there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(180)

READERS = [
    pytest.param(["why", "{run}", "1-0"], id="why"),
    pytest.param(["health-check", "{run}"], id="health-check"),
    pytest.param(["report", "{run}"], id="report"),
    pytest.param(["compare", "{run}", "{run}", "--output-dir", "compared"], id="compare"),
    pytest.param(["export", "csv", "{run}", "--output-dir", "tables"], id="export"),
    pytest.param(["aggregate", "{run}", "-o", "again.jsonl"], id="aggregate"),
    pytest.param(["merge", "{run}", "-o", "again.jsonl"], id="merge"),
    pytest.param(["merge", "--check", "{run}"], id="check"),
]
OPERATORS = [pytest.param([verb, "{run}"], id=verb) for verb in ("status", "logs", "cancel")]
WHOLE = [
    pytest.param([verb, "{run}", *more], id=verb) for verb, more in (("resubmit", ["--dry-run"]), ("unlock", []), ("clean", []))
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("named") / "user", {"type": "local", "max_concurrent": 2})
    project.benchmark("math", tasks=4, shards=2)
    project.benchmark("code", tasks=2)
    project.submit("--wait", timeout_s=100)
    return project


def forms_of_math(project: Project) -> dict[str, str]:
    run = project.run_dir
    return {
        "name-and-benchmark": f"{run.name}/math",
        "beginning-and-benchmark": f"{run.name[:8]}/math",
        "benchmark's-directory": os.path.relpath(run / "math", project.root),
    }


def in_place(arguments: list[str], run: str) -> list[str]:
    return [argument.format(run=run) for argument in arguments]


@pytest.mark.parametrize("arguments", READERS)
@pytest.mark.parametrize("form", ["name-and-benchmark", "beginning-and-benchmark", "benchmark's-directory", "merged-file"])
def test_a_benchmark_is_read_however_it_is_named(finished: Project, arguments: list[str], form: str) -> None:
    forms = {**forms_of_math(finished), "merged-file": str(finished.run_dir / "math" / "rollouts.jsonl")}
    if form == "merged-file" and "again.jsonl" in arguments:
        # A projection has no history to merge by: its shards are what is merged.
        arguments = [arguments[0], str(finished.run_dir / "math"), *arguments[2:]]

    done = finished.gym(*in_place(arguments, forms[form]))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", OPERATORS)
@pytest.mark.parametrize("form", ["name-and-benchmark", "beginning-and-benchmark", "benchmark's-directory"])
def test_a_benchmark_is_operated_however_it_is_named(finished: Project, arguments: list[str], form: str) -> None:
    done = finished.gym(*in_place(arguments, forms_of_math(finished)[form]))

    assert done.returncode == 0, done.stderr
    assert "code" not in done.stdout


@pytest.mark.parametrize("arguments", [*READERS, *OPERATORS, *WHOLE])
def test_what_is_not_there_is_said_alike(finished: Project, arguments: list[str]) -> None:
    done = finished.gym(*in_place(arguments, "nothing-like-this"))

    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "nothing-like-this: there is no such run, directory or file." in done.stderr
    assert finished.run_dir.name in done.stderr


def test_status_of_a_benchmark_is_about_it_alone(finished: Project) -> None:
    found = json.loads(finished.gym("status", f"{finished.run_dir.name}/code", "--json").stdout)

    assert [benchmark["name"] for benchmark in found["benchmarks"]] == ["code"]


@pytest.mark.parametrize("arguments", WHOLE)
def test_a_command_about_whole_runs_refuses_a_part(finished: Project, arguments: list[str]) -> None:
    done = finished.gym(*in_place(arguments, f"{finished.run_dir.name}/code"))

    assert done.returncode == 2
    assert f"this command takes a whole run. Name {finished.run_dir.name}." in done.stderr


def test_compare_asks_which_benchmark_and_takes_the_answer(finished: Project) -> None:
    name = finished.run_dir.name
    asked = finished.gym("compare", name, name, "--output-dir", "c")
    answered = finished.gym("compare", name, name, "--output-dir", "c", "--benchmark", "code")

    assert asked.returncode == 2
    assert "the run has several benchmarks: math, code. Add --benchmark NAME, or write RUN/NAME." in asked.stderr
    assert answered.returncode == 0, answered.stderr
    assert "2/2 scored" in answered.stdout


def test_compare_says_how_it_compared_and_which_settings_differ(finished: Project) -> None:
    for name, temperature in (("cold", 0.0), ("warm", 0.7)):
        project = Project(finished.root / name, {"type": "local"})
        project.benchmark("math", tasks=4, responses_create_params={"temperature": temperature})
        project.submit("--wait", timeout_s=100)
    runs = [next((finished.root / name / "runs").iterdir()) / "math" for name in ("cold", "warm")]

    done = finished.gym("compare", *map(str, runs), "--output-dir", "c")

    assert done.returncode == 0, done.stderr
    assert "compared   paired by task" in done.stdout
    assert "- responses_create_params.temperature: 0.0, now 0.7" in done.stdout
    report = json.loads((finished.root / "c" / "compare_report.json").read_text())
    assert report["candidates"][0]["settings_changed"] == [
        {"key": "responses_create_params.temperature", "base": 0.0, "candidate": 0.7}
    ]
    assert "temperature: 0.0, now 0.7" in (finished.root / "c" / "compare_report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(["RUN"], 0, "No export is configured.", id="nothing-configured"),
        pytest.param(["RUN", "csv"], 2, "the exporter comes first: gym eval export csv RUN.", id="wrong-order"),
        pytest.param([], 2, "no run was named. Write gym eval export EXPORTER RUN", id="nothing-named"),
    ],
)
def test_export_says_what_the_command_line_lacks(finished: Project, arguments: list[str], code: int, told: str) -> None:
    name = finished.run_dir.name

    done = finished.gym("export", *(word.replace("RUN", name) for word in arguments))

    assert done.returncode == code
    assert told.replace("csv RUN", f"csv {name}") in done.stdout + done.stderr


def test_every_benchmark_of_a_run_gets_its_table(finished: Project, tmp_path: Path) -> None:
    done = finished.gym("export", "csv", finished.run_dir.name, "--output-dir", str(tmp_path / "all"))

    assert done.returncode == 0, done.stdout + done.stderr
    tables = {path.parent.name: path.read_text() for path in tmp_path.glob("all/*/rollouts_table.csv")}
    assert {name: text.count("\n") for name, text in tables.items()} == {"math": 5, "code": 3}


def test_a_directory_with_a_single_run_is_that_run(finished: Project) -> None:
    shard = next((finished.run_dir / "code" / "shards").iterdir())

    done = finished.gym("why", str(shard), "0-0")

    assert done.returncode == 0, done.stderr
    assert "0-0  measured" in done.stdout


def test_a_plan_of_some_other_program_above_makes_no_run(finished: Project, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format_version": "1.2"}')
    rows = tmp_path / "out" / "rows.jsonl"
    rows.parent.mkdir()
    rows.write_bytes((finished.run_dir / "code" / "rollouts.jsonl").read_bytes())

    done = finished.gym("health-check", str(rows))

    assert "plan.json" not in done.stderr
    assert done.returncode == 0, done.stderr
