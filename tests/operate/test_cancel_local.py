"""Cancelling a run on this machine: by process group, nothing recorded lost, and going on afterwards."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import filelock
import pytest

from orchestrate.cli.main import main
from orchestrate.jobs.job import _TERM_MARGIN_S
from orchestrate.jobs.processes import started_at
from tests.orchestrate.project import Project
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


class Halted:
    """A run of two shards in the middle of its work: every second of its tasks gets no answer the first time it is asked."""

    TASKS = 12

    def __init__(self, project: Project, server: ModelServer) -> None:
        self.project = project
        self.server = server
        project.config["services"]["policy"] = {"type": "external", "url": server.base_url, "served_model_name": server.model}
        project.benchmark("math", tasks=self.TASKS, shards=2, num_samples_in_parallel=self.TASKS)
        dataset = Path(project.config["driver"]["benchmarks"]["math"]["run"]["input_jsonl_fpath"])
        lines = dataset.read_text().splitlines(keepends=True)
        # The server outlives the jobs, and with it the count of what each task asked.
        dataset.write_text(
            "".join(line.replace("hello", "[[mode: silence x1]]" if n % 2 else "") for n, line in enumerate(lines))
        )

    def begin(self) -> None:
        """Return when half of the rollouts are recorded and the other half are in flight in both shards."""
        self.project.submit()
        wait_for(lambda: self.asked() == self.TASKS and self.measured() == self.TASKS // 2, 60)
        assert set(self.final()) == {False}

    def asked(self) -> int:
        return sum(request["task"].startswith("math-") for request in self.server.requests())

    def measured(self) -> int:
        return self.project.status()["benchmarks"][0]["measured"]

    def final(self) -> list[bool]:
        return [shard["final"] for shard in self.project.status()["benchmarks"][0]["shards"]]

    def pids(self) -> dict[int, int]:
        shards = self.project.status()["benchmarks"][0]["shards"]
        return {shard["index"]: int(shard["job_id"].split(":")[1]) for shard in shards}


@pytest.fixture
def halted(project: Project, model_server: ModelServer) -> Iterator[Halted]:
    run = Halted(project, model_server)
    yield run
    for pid in run.pids().values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def test_a_run_that_is_final_has_nothing_to_go_on_with(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)

    done = project.gym("cancel")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"No job was waiting or running.\nNothing is left to do in it: gym eval status {project.run_dir.name}\n"
    )


def test_cancelled_jobs_are_gone_and_a_submit_goes_on(halted: Halted) -> None:
    halted.begin()
    before = halted.pids()

    done = halted.project.gym("cancel")

    assert done.returncode == 0, done.stderr
    assert "2 jobs ended" in done.stdout
    assert all(started_at(pid) is None for pid in before.values())
    assert halted.measured() == halted.TASKS // 2
    assert "(12/12)" in halted.project.submit("--wait", timeout_s=100)
    # What was recorded before was not asked again.
    assert halted.asked() == halted.TASKS + halted.TASKS // 2


def test_one_cancelled_shard_leaves_the_other_at_work(halted: Halted) -> None:
    halted.begin()
    before = halted.pids()

    done = halted.project.gym("cancel", "--shard", "1", "--json")

    assert [job["shard"] for job in json.loads(done.stdout)["stopped"]] == [1]
    assert started_at(before[1]) is None
    assert started_at(before[0]) is not None


def test_finish_merges_what_is_there_calls_it_partial_and_goes_when_the_whole_is_there(halted: Halted) -> None:
    """Exported is what may be partial; what may not is named."""
    halted.project.config["export"] = {"csv": {"allow_partial": True}, "atif": {"agent_version": "1.0.0"}}
    halted.begin()
    folder = halted.project.run_dir / "math"

    done = halted.project.gym("cancel", "--finish")

    assert done.returncode == 0, done.stderr
    assert "(partial)" in done.stdout
    assert not (folder / "rollouts.jsonl").exists()
    assert len((folder / "rollouts.partial.jsonl").read_text().splitlines()) == halted.measured() == halted.TASKS // 2
    benchmark = halted.project.status()["benchmarks"][0]
    assert (benchmark["merged_partially"], benchmark["merged"]) == (True, str(folder / "rollouts.partial.jsonl"))
    assert "Export csv: " in done.stderr
    assert "Export atif: not made of a partial result; allow_partial: true in its settings would" in done.stderr
    (table,) = folder.glob("*_table.csv")
    assert table.read_text().startswith("_ng_task_index")
    assert not list(folder.glob("*_atif"))

    said = halted.project.submit("--wait", timeout_s=100)

    assert "(12/12)" in said
    assert halted.project.status()["benchmarks"][0]["merged_partially"] is False
    # What was exported of it stays, and stays told.
    left = {path.name.removeprefix("rollouts.partial") for path in folder.glob("rollouts.partial*") if path.suffix != ".lock"}
    assert left == {"_exports.jsonl", "_table.csv"}


def test_the_help_says_how_long_requests_in_flight_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "cancel", "--help"])

    assert f"give requests in flight {_TERM_MARGIN_S:g} seconds to finish" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--benchmark", "nope"], "There are: math", id="unknown-benchmark"),
        pytest.param(["--shard", "7"], "They are 0 to 0", id="unknown-shard"),
    ],
)
def test_what_the_run_does_not_have_is_told(project: Project, arguments: list[str], said: str) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)

    done = project.gym("cancel", *arguments)

    assert done.returncode == 3
    assert said in done.stderr


def test_nothing_is_cancelled_while_another_command_submits(halted: Halted) -> None:
    halted.begin()

    with filelock.FileLock(halted.project.run_dir / "submit.lock"):
        done = halted.project.gym("cancel")

    assert done.returncode == 4
    assert "another command is at work on this run" in done.stderr
    assert all(started_at(pid) is not None for pid in halted.pids().values())


def test_jobs_of_another_machine_are_not_touched(halted: Halted) -> None:
    halted.begin()
    path = halted.project.run_dir / "submissions.jsonl"
    original = path.read_text()
    own = next(iter(json.loads(original.splitlines()[1])["jobs"].values())).split(":")[0]
    path.write_text(original.replace(f'"{own}:', '"elsewhere:'))

    done = halted.project.gym("cancel")

    assert done.returncode == 5
    assert "started on elsewhere" in done.stderr
    path.write_text(original)
    assert all(started_at(pid) is not None for pid in halted.pids().values())
