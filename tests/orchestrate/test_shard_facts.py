"""What status knows of a shard already is not read again, and never believed once the shard has changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.status import make_run
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from orchestrate.runs.directory import read_plan
from orchestrate.runs.shard_facts import KnownShards
from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    project.benchmark("math", tasks=4, shards=2)
    project.submit("--wait", timeout_s=100)
    return project


def spoil(journal: Path, *, keeps_time: bool) -> None:
    """Other bytes, as many as there were, in the same file."""
    info = journal.stat()
    with journal.open("r+b") as file:
        file.write(b"x" * info.st_size)
    os.utime(journal, ns=(info.st_atime_ns, info.st_mtime_ns if keeps_time else info.st_mtime_ns + 1))


def shards(project: Project) -> list[dict[str, object]]:
    return project.status()["benchmarks"][0]["shards"]


def journal_of(project: Project, index: int) -> Path:
    return project.run_dir / "math" / "shards" / f"{index}-of-2" / "rollouts_attempts.jsonl"


def test_an_unchanged_journal_is_read_once(project: Project) -> None:
    before = shards(project)
    spoil(journal_of(project, 0), keeps_time=True)

    after = shards(project)

    assert [(s["final"], s["completed"], s["sessions"]) for s in after] == [
        (s["final"], s["completed"], s["sessions"]) for s in before
    ]


def test_a_changed_journal_is_read_again(project: Project) -> None:
    shards(project)
    spoil(journal_of(project, 0), keeps_time=False)

    first, second = shards(project)

    assert "rollouts_attempts.jsonl:1" in str(first["trouble"])
    assert second["trouble"] is None


COMPANIONS = ["_manifest.json", "_materialized_inputs.jsonl", "_failures.jsonl", ".jsonl"]


@pytest.mark.parametrize("tag", COMPANIONS)
def test_a_file_of_a_shard_that_is_lost_is_noticed(project: Project, tag: str) -> None:
    shards(project)
    (project.run_dir / "math" / "shards" / "0-of-2" / f"rollouts{tag}").unlink()

    first, second = shards(project)

    assert first["trouble"]
    assert (second["trouble"], second["final"]) == (None, True)


def test_a_manifest_that_was_overwritten_is_noticed(project: Project) -> None:
    shards(project)
    (project.run_dir / "math" / "shards" / "0-of-2" / "rollouts_manifest.json").write_text("{")

    first, second = shards(project)

    assert "rollouts_manifest.json" in str(first["trouble"])
    assert second["trouble"] is None


def test_other_settings_of_retries_are_counted_anew(project: Project) -> None:
    shards(project)
    facts = project.run_dir / "shard-facts.json"
    before = facts.read_bytes()
    project.config["driver"]["benchmarks"]["math"]["run"]["retry"] = {"max_attempts": 7}
    project.submit()

    shards(project)

    assert facts.read_bytes() != before


@pytest.mark.parametrize("text", ["", "{", '{"shards": {}, "schema_version": 9}', '{"shards": {"math/shards/0-of-2": [1]}}'])
def test_a_file_of_facts_that_cannot_be_read_is_made_again(project: Project, text: str) -> None:
    (project.run_dir / "shard-facts.json").write_text(text)

    assert all(shard["final"] for shard in shards(project))

    assert len(json.loads((project.run_dir / "shard-facts.json").read_text())["shards"]) == 2


def test_a_run_that_cannot_be_written_is_shown(project: Project) -> None:
    facts = project.run_dir / "shard-facts.json"
    facts.unlink()
    facts.mkdir()

    assert all(shard["final"] for shard in shards(project))


def test_many_shards_that_nobody_knows_are_read_by_several_processes_and_told_alike(tmp_path: Path) -> None:
    """One of them is broken, and one goes on after it was looked at."""
    run = make_run(tmp_path, 401, 1)
    (benchmark,) = read_plan(run).benchmarks
    places, retry = run.shards(benchmark), RetrySettings()
    alone = [KnownShards(run).of(place, retry) for place in places[2:]]
    spoil(places[0].journal, keeps_time=False)
    known = KnownShards(run)

    known.look_at(places, retry)
    for place in places[1:]:
        spoil(place.journal, keeps_time=False)

    assert [known.of(place, retry) for place in places[2:]] == alone
    with pytest.raises(CorruptArtifactError, match="the last line begins no event"):
        known.of(places[0], retry)
    known.keep()
    # What was changed meanwhile is read again at the next look.
    with pytest.raises(CorruptArtifactError):
        KnownShards(run).of(places[1], retry)


@pytest.mark.parametrize("shards", [pytest.param(2, id="alone"), pytest.param(401, id="by-several-processes")])
def test_a_line_that_is_added_while_a_shard_is_read_is_noticed_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    def read_and_overtaken(artifacts: RunArtifacts) -> RolloutStore:
        store = read(artifacts)
        with artifacts.journal.open("ab") as journal:
            journal.write(b"x")
        return store

    run = make_run(tmp_path, shards, 1)
    (benchmark,) = read_plan(run).benchmarks
    places, retry = run.shards(benchmark), RetrySettings()
    read = RolloutStore.read
    monkeypatch.setattr(RolloutStore, "read", read_and_overtaken)
    known = KnownShards(run)
    known.look_at(places, retry)
    found = known.of(places[0], retry)
    known.keep()
    monkeypatch.undo()

    assert found.coverage.is_final
    assert run.shard_facts.exists()
    with pytest.raises(CorruptArtifactError, match="the last line begins no event"):
        KnownShards(run).of(places[0], retry)
