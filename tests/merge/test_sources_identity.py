"""Which inputs are one run's shards: named in many ways, counted once, and never mixed with others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, IdentityError, IncompleteError, NotFoundError, RefusedError
from merge.command import merge_paths
from merge.inputs.sources import find_runs
from tests.merge.build import CONFIG, Plan, answered, failed, fill, fill_all, plan, prepare_only
from tests.merge.resolve import resolve_sources


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "run" / "bench", shards=3, tasks=6)
    fill_all(made, lambda *_: answered())
    return made


def rollouts(made: Plan) -> list[Path]:
    return [shard.rollouts for shard in made.shards]


def test_a_run_a_benchmark_paths_and_globs_name_the_same_shards(made: Plan) -> None:
    run = made.directory.parent
    ways: list[list[str | Path]] = [
        [run],
        [made.directory],
        [*rollouts(made)],
        [str(made.directory / "shards" / "*" / "*.jsonl")],
        [str(made.directory / "shards" / "*")],
        [made.directory, *rollouts(made), run],
    ]
    for way in ways:
        assert [artifacts.rollouts for artifacts in resolve_sources(way).artifacts] == rollouts(made)


def test_links_lead_to_the_original_run_and_count_once(made: Plan, tmp_path: Path) -> None:
    link = tmp_path / "one.jsonl"
    link.symlink_to(made.shards[1].rollouts)
    hard = tmp_path / "two.jsonl"
    os.link(made.shards[2].rollouts, hard)
    first = made.shards[0].rollouts

    found = resolve_sources([link, hard, first, made.shards[1].rollouts, made.shards[2].rollouts])

    assert [artifacts.rollouts for artifacts in found.artifacts] == rollouts(made)


def test_missing_shards_are_named(made: Plan) -> None:
    with pytest.raises(RefusedError, match=r"2 of 3 shards are missing: 0, 2\.") as caught:
        resolve_sources([made.shards[1].rollouts])
    assert caught.value.exit_code == 4


def test_a_partial_merge_counts_the_missing_rollouts_and_names_their_shards(made: Plan, tmp_path: Path) -> None:
    report = merge_paths([made.shards[1].rollouts], tmp_path / "part.jsonl", allow_partial=True)

    assert report.coverage.partial
    assert (report.coverage.measured, report.coverage.expected, report.coverage.unfinished) == (2, 6, 4)
    text = (tmp_path / "part.partial_coverage.json").read_text()
    assert text.startswith('{\n  "partial": true')
    assert '"missing_shards": [\n    0,\n    2\n  ]' in text


def test_a_copy_of_a_shard_is_a_doubled_shard(made: Plan, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in made.shards[0].rollouts.parent.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())

    with pytest.raises(RefusedError, match=r"the same shard more than once: shard 0 at .*; shard 0 at "):
        resolve_sources([*rollouts(made), copy])


def test_another_model_is_another_experiment_and_the_field_is_named(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=3, tasks=6, run_id=made.run_id, config={**CONFIG, "policy_model_name": "n"})
    fill(other, 2, lambda *_: answered())

    with pytest.raises(IdentityError, match=r'policy_model_name: "m" and "n"'):
        resolve_sources([*rollouts(made)[:2], other.shards[2].rollouts])


def test_a_shard_of_another_run_of_the_same_experiment_is_foreign(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=3, tasks=6)
    fill(other, 2, lambda *_: answered())

    with pytest.raises(IdentityError, match=f"run \\({made.run_id} and {other.run_id}\\)"):
        resolve_sources([*rollouts(made)[:2], other.shards[2].rollouts])


def test_shards_of_two_plans_are_not_mixed(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=4, tasks=6, run_id=made.run_id)
    fill(other, 3, lambda *_: answered())

    with pytest.raises(RefusedError, match="one of 4 shards of 6 rollouts, among 3 shards"):
        resolve_sources([*rollouts(made), other.shards[3].rollouts])


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        pytest.param("nowhere.jsonl", NotFoundError, "no such input", id="no-file"),
        pytest.param("*.nothing", NotFoundError, "matches no rollouts", id="empty-glob"),
        pytest.param("", NotFoundError, "neither a run nor a shard in this directory", id="directory-without-shards"),
    ],
)
def test_an_input_that_names_nothing_is_not_found(tmp_path: Path, name: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        resolve_sources([tmp_path / name])


def _prepared(rollouts: Path) -> None:
    for file in (rollouts, RunArtifacts(rollouts).manifest):
        file.write_bytes(b"")


def test_a_directory_of_copied_shards_is_told_with_the_pattern_that_names_them(made: Plan, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    (made.directory / "shards").rename(copied)

    with pytest.raises(NotFoundError, match="nothing says that they belong together") as refused:
        find_runs([copied])

    assert f"name them: '{copied}/*'" in str(refused.value)
    assert {run.rollouts.parent.parent for run in find_runs([f"{copied}/*"])} == {copied}


def test_a_directory_stands_for_the_only_run_in_it_whatever_its_file_is_called(tmp_path: Path) -> None:
    """The directory of a ``gym eval run`` whose output was not called ``rollouts.jsonl`` was refused as one without shards."""
    (tmp_path / "rows.jsonl").write_bytes(b"")
    _prepared(tmp_path / "a.jsonl")
    assert [run.rollouts.name for run in find_runs([tmp_path])] == ["a.jsonl"]

    _prepared(tmp_path / "b.jsonl")
    with pytest.raises(RefusedError, match=r"several runs lie in this directory: a\.jsonl, b\.jsonl"):
        find_runs([tmp_path])


@pytest.mark.parametrize("name", ["failures", "moved", "coverage", "aggregate", "receipt", "manifest", "health", "verdicts"])
def test_a_companion_is_no_input(made: Plan, name: str) -> None:
    companion: Path = getattr(made.shards[0], name)
    companion.touch()

    with pytest.raises(RefusedError, match="not its rollouts"):
        resolve_sources([companion])


def test_a_manifest_with_half_a_character_is_told_as_such(made: Plan) -> None:
    manifest = made.shards[1].manifest
    manifest.write_bytes(manifest.read_bytes().replace(b'"openai_chat"', b'"\\ud800"'))

    with pytest.raises(CorruptArtifactError, match="a lone surrogate") as caught:
        resolve_sources([made.directory])
    assert str(manifest) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "number"), [("index", "4194304"), ("index", "9" * 400), ("whole_expected", "9" * 400), ("expected", "9" * 400)]
)
def test_a_number_that_nobody_plans_is_told(made: Plan, key: str, number: str) -> None:
    """Which shards were missing was counted up to it, without end."""
    manifest = made.shards[1].manifest
    text = re.sub(rf'"{key}": \d+', f'"{key}": {number}', manifest.read_text())
    manifest.write_text(text)

    with pytest.raises(CorruptArtifactError, match=key):
        resolve_sources([made.directory], allow_partial=True)


def test_a_file_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n")

    with pytest.raises(NotFoundError, match="no prepared run"):
        resolve_sources([tmp_path / "rows.jsonl"])


def test_a_run_with_two_benchmarks_asks_for_one(made: Plan) -> None:
    other = plan(made.directory.parent / "other", shards=1, tasks=1)
    fill_all(other, lambda *_: answered())

    with pytest.raises(RefusedError, match="several benchmarks: bench, other"):
        resolve_sources([made.directory.parent])


def test_unfinished_rollouts_are_merged_only_on_request(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill(made, 0, lambda task, _: failed(terminal=False) if task == 0 else answered())
    prepare_only(made, 1)

    with pytest.raises(IncompleteError, match="3 rollouts are unfinished") as caught:
        merge_paths([made.directory], made.merged.rollouts)

    assert caught.value.exit_code == 6
    assert not made.merged.rollouts.exists()
    report = merge_paths([made.directory], made.merged.rollouts, allow_partial=True)
    assert report.receipt.partial
    assert report.coverage.measured == 1


def test_one_rollout_in_two_shards_is_refused(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    made.lines[1][0] = made.lines[0][1]
    fill_all(made, lambda *_: answered())

    with pytest.raises(RefusedError, match="rollout 1-0 is in both inputs"):
        merge_paths([made.directory], made.merged.rollouts)
    assert not made.merged.rollouts.exists()
