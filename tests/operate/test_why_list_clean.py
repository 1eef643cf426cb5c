"""Explaining a rollout, listing runs, freeing locks and cleaning up, on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.orchestrate.project import Project, tree
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def finished(project: Project) -> Project:
    project.benchmark("math", tasks=4, shards=2)
    project.benchmark("other", tasks=2)
    project.submit("--wait", timeout_s=100)
    return project


def test_why_tells_the_attempt_and_the_state(finished: Project) -> None:
    done = finished.gym("why", finished.run_dir.name, "1-0", "--benchmark", "math")

    assert done.returncode == 0, done.stderr
    assert "1-0  measured" in done.stdout
    assert "attempt 0" in done.stdout
    assert "nothing: measured" in done.stdout


def test_why_without_a_run_is_about_the_last_one(finished: Project) -> None:
    done = finished.gym("why", "1-0", "--benchmark", "math")

    assert done.stdout == finished.gym("why", finished.run_dir.name, "1-0", "--benchmark", "math").stdout != ""


def test_why_shows_every_benchmark_that_has_the_rollout(finished: Project) -> None:
    both = json.loads(finished.gym("why", str(finished.run_dir), "1-0", "--json").stdout)
    one = json.loads(finished.gym("why", str(finished.run_dir), "3-0", "--json").stdout)

    assert [item["place"].split()[0] for item in both] == ["math", "other"]
    assert [item["place"].split()[0] for item in one] == ["math"]
    assert one[0]["state"] == "measured"


def test_why_of_a_single_run_takes_its_file(finished: Project) -> None:
    shard = next((finished.run_dir / "other" / "shards").iterdir()) / "rollouts.jsonl"

    done = finished.gym("why", str(shard), "0-0")

    assert done.returncode == 0, done.stderr
    assert "0-0  measured" in done.stdout
    assert done.stdout.splitlines()[0] == str(shard)


@pytest.mark.parametrize(("rollout", "code"), [("99-0", 3), ("math", 2)])
def test_why_of_no_rollout_is_one_line(finished: Project, rollout: str, code: int) -> None:
    done = finished.gym("why", str(finished.run_dir), rollout)

    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1


def test_a_rollout_that_was_planned_anew_is_shown_where_it_was_and_where_it_is(project: Project) -> None:
    project.config["services"]["policy"]["command"] = ["bash", "-c", "exit 3"]
    project.benchmark("math", tasks=2)
    project.submit()
    wait_for(lambda: "ended with exit code 3" in project.logs(), 60)
    wait_for(lambda: project.status()["benchmarks"][0]["shards"][0]["job_state"] == "GONE", 60)
    assert project.gym("resubmit", "--shards", "2").returncode == 0

    found = json.loads(project.gym("why", str(project.run_dir), "1-0", "--json").stdout)
    shards = project.status()["benchmarks"][0]["shards"]

    assert found[0]["place"] == f"math shard 0, which left it to {found[1]['place'].removeprefix('math ')}"
    assert [shard["expected"] for shard in shards] == [0, 1, 1]
    project.gym("cancel")


def test_list_names_runs_and_how_many_benchmarks_are_merged(finished: Project) -> None:
    listed = json.loads(finished.gym("list", "--json").stdout)
    recent = finished.gym("list", "--since", "1h").stdout
    none = finished.gym("list", "--since", "2999-01-01").stdout

    assert [(run["name"], run["merged"], run["benchmarks"], run["rollouts"]) for run in listed] == [
        (finished.run_dir.name, 2, 2, 6)
    ]
    assert finished.run_dir.name in recent
    assert "No run was submitted" in none


def test_list_says_what_is_no_moment(finished: Project) -> None:
    done = finished.gym("list", "--since", "yesterday")

    assert done.returncode == 2
    assert "7d, 12h" in done.stderr


def test_clean_removes_what_jobs_left_and_no_result(finished: Project) -> None:
    leftover = finished.run_dir / "math" / ".rollouts.jsonl.0123456789abcdef.tmp"
    leftover.write_text("half")
    kept = {name for name in tree(finished.run_dir) if not name.endswith((".pkl", ".log", ".tmp")) and "slots/" not in name}

    dry = finished.gym("clean", str(finished.run_dir), "--dry-run")
    before = set(tree(finished.run_dir))
    done = finished.gym("clean", str(finished.run_dir))

    assert re.search(r": would remove \d+ files, [1-9]\d* kB\n", dry.stdout)
    assert leftover.name in dry.stdout
    assert done.returncode == 0, done.stderr
    assert set(tree(finished.run_dir)) < before
    assert set(tree(finished.run_dir)) == kept
    assert "2 final" in finished.submit()
    assert finished.status()["benchmarks"][0]["measured"] == 4


def test_clean_of_all_runs_takes_only_old_ones(finished: Project) -> None:
    before = set(tree(finished.run_dir))

    done = finished.gym("clean", "--older-than", "1d")
    assert "Nothing to remove of runs untouched for " in done.stdout
    assert set(tree(finished.run_dir)) == before
    old = time.time() - 3 * 86400
    for path in [finished.run_dir, *finished.run_dir.rglob("*")]:
        os.utime(path, (old, old))
    done = finished.gym("clean", "--older-than", "1d")

    assert "removed" in done.stdout
    assert not list(finished.run_dir.rglob("*.pkl"))


def test_clean_refuses_while_a_job_lives(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=1)
    project.benchmark("math", tasks=60, num_samples_in_parallel=1)
    project.submit()
    before = set(project.run_dir.rglob("*.pkl"))

    done = project.gym("clean", str(project.run_dir), "--all")

    assert done.returncode == 4
    assert "1 job still live" in done.stderr
    assert set(project.run_dir.rglob("*.pkl")) == before
    project.gym("cancel")


def test_only_all_removes_results_and_only_of_a_named_run(finished: Project) -> None:
    unnamed = finished.gym("clean", "--all")
    run_dir = finished.run_dir

    done = finished.gym("clean", str(run_dir), "--all")

    assert unnamed.returncode == 2
    assert done.returncode == 0, done.stderr
    assert list(finished.runs.iterdir()) == []
    assert "No run was submitted" in finished.gym("list").stdout


def test_unlock_of_free_locks_changes_nothing(finished: Project) -> None:
    done = finished.gym("unlock", str(finished.run_dir))

    assert done.returncode == 0
    assert "No shard of this run is locked" in done.stdout


def test_unlock_refuses_an_owner_that_lives(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=1)
    project.benchmark("math", tasks=60, num_samples_in_parallel=1)
    project.submit()
    wait_for(lambda: len(project.requests()) >= 1, 60)

    asked = project.gym("unlock", str(project.run_dir))
    forced = project.gym("unlock", str(project.run_dir), "--yes")

    assert asked.returncode == 4
    assert "nobody can be asked" in asked.stderr
    assert "held by process" in asked.stdout
    assert forced.returncode == 4
    assert "alive" in forced.stderr
    project.gym("cancel")


def test_unlock_frees_the_strict_lock_of_a_dead_owner(project: Project, tmp_path: Path) -> None:
    rollouts = tmp_path / "out" / "rollouts.jsonl"
    holding = (
        "import os, sys; from pathlib import Path; from collector.shard.lock import ShardLock, LockBackend;"
        "lock = ShardLock(Path(sys.argv[1]), backend=LockBackend.STRICT_SOFT); lock.__enter__(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", holding, str(rollouts) + ".lock"], check=True, env=project.environment())

    done = project.gym("unlock", str(rollouts), "--yes")

    assert done.returncode == 0, done.stderr
    assert "is gone" in done.stdout
    assert "dead owner was removed" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(finished: Project) -> None:
    program = f"{sys.executable} -m orchestrate.cli.main eval status --json | head -1; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", program], cwd=finished.root, env=finished.environment(), capture_output=True, text=True, check=False
    )

    assert done.stdout == "{\n"
    assert done.stderr == ""
    assert done.returncode in {0, 141}
