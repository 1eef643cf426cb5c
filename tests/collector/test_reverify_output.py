"""Where a regrading goes: what is there is refused, gone on with or replaced, and what was collected never is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import (
    CorruptArtifactError,
    IdentityError,
    RefusedError,
)
from collector.formats.manifest import read_manifest
from collector.reverify.output import prepare_output
from merge.command import merge_paths
from tests.collector.regrading import NUMBER, by_id, files_in, regrade, two_shards
from tests.collector.shards import rows_of
from tests.merge.build import answered, failed, fill_all, plan


class TestTheOutput:
    def test_what_is_there_is_refused_replaced_or_gone_on_with(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        regrade(made.directory, output, **NUMBER)
        first = read_manifest(RunArtifacts(output).manifest)
        before = files_in(tmp_path)

        with pytest.raises(RefusedError, match=r"Use --resume to go on with it, --overwrite to replace it"):
            regrade(made.directory, output, **NUMBER)
        assert files_in(tmp_path) == before
        regrade(made.directory, output, resume=True, **NUMBER)
        assert read_manifest(RunArtifacts(output).manifest) == first
        regrade(made.directory, output, overwrite=True, verifier={"type": "regex", "pattern": "five"})
        assert {name: row.get("reward") for name, row in by_id(output).items()} == {"0-0": 0.0, "1-0": 1.0, "2-0": None}

    @pytest.mark.parametrize("flags", [{}, {"overwrite": True}, {"resume": True}], ids=["plain", "overwrite", "resume"])
    def test_a_run_that_was_collected_is_never_replaced(self, tmp_path: Path, flags: dict[str, bool]) -> None:
        made, other = two_shards(tmp_path), two_shards(tmp_path / "other")
        before = files_in(tmp_path)

        with pytest.raises(RefusedError, match="a run that was collected"):
            regrade(made.directory, other.shards[0].rollouts, **NUMBER, **flags)
        with pytest.raises(RefusedError, match="would replace files of the run that is graded"):
            regrade(made.directory, made.shards[0].rollouts, **NUMBER, **flags)
        assert files_in(tmp_path) == before

    @pytest.mark.parametrize("flags", [{}, {"overwrite": True}, {"resume": True}], ids=["plain", "overwrite", "resume"])
    def test_a_merged_result_is_never_replaced(self, tmp_path: Path, flags: dict[str, bool]) -> None:
        made, other = two_shards(tmp_path), two_shards(tmp_path / "other")
        merge_paths([other.directory], other.merged.rollouts)
        before = files_in(tmp_path)

        with pytest.raises(RefusedError, match="the output is a merged result") as caught:
            regrade(made.directory, other.merged.rollouts, **NUMBER, **flags)

        assert "--overwrite" not in str(caught.value)
        assert files_in(tmp_path) == before

    def test_files_without_a_manifest_are_not_gone_on_with(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        output.write_text('{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1}\n')

        with pytest.raises(RefusedError, match="no manifest"):
            regrade(made.directory, output, resume=True, **NUMBER)
        assert len(rows_of(output)) == 1

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            pytest.param("new.jsonl", '{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1}', id="rows-of-another-program"),
            pytest.param("new.jsonl", '{"question":"1+1?"}', id="dataset"),
            pytest.param("new_config.yaml", "verifier: {type: number}", id="settings"),
            pytest.param("new_failures.jsonl", '{"_ng_task_index":0}', id="failures"),
        ],
    )
    def test_what_no_regrading_made_is_never_replaced(self, tmp_path: Path, name: str, text: str) -> None:
        """``--overwrite`` removed rows that NeMo Gym had collected, and a dataset."""
        made = two_shards(tmp_path)
        (tmp_path / name).write_text(f"{text}\n")
        before = files_in(tmp_path)

        with pytest.raises(RefusedError, match=f"no earlier regrading made what is there: {name}"):
            regrade(made.directory, tmp_path / "new.jsonl", overwrite=True, **NUMBER)
        assert files_in(tmp_path) == before

    def test_a_link_is_not_replaced_for_what_it_leads_to(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        (tmp_path / "new.jsonl").symlink_to("nowhere")

        with pytest.raises(RefusedError, match="no earlier regrading"):
            regrade(made.directory, tmp_path / "new.jsonl", overwrite=True, **NUMBER)
        assert (tmp_path / "new.jsonl").is_symlink()

    def test_what_a_crash_left_of_a_regrading_that_was_replaced_is_known(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        new = RunArtifacts(tmp_path / "new.jsonl")
        regrade(made.directory, new.rollouts, **NUMBER)
        left = tmp_path / f".{new.manifest.name}.0123456789abcdef.tmp"
        left.mkdir()
        for path in (new.manifest, new.rollouts):
            path.rename(left / path.name)

        regrade(made.directory, new.rollouts, overwrite=True, **NUMBER)

        assert len(rows_of(new.rollouts)) == 3
        assert not left.exists()

    def test_rows_that_a_regrading_made_are_known_by_themselves(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        new = RunArtifacts(tmp_path / "new.jsonl")
        regrade(made.directory, new.rollouts, **NUMBER)
        new.manifest.unlink()

        regrade(made.directory, new.rollouts, overwrite=True, **NUMBER)

        assert len(rows_of(new.rollouts)) == 3

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            pytest.param({"verifier": {"type": "regex", "pattern": "five"}}, "verifier.pattern", id="verifier"),
            pytest.param({"limit": 2, **NUMBER}, "reverify.limit", id="limit"),
        ],
    )
    def test_another_regrading_does_not_go_on_with_it(self, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
        made = two_shards(tmp_path)
        regrade(made.directory, tmp_path / "new.jsonl", **NUMBER)

        with pytest.raises(IdentityError, match=words):
            regrade(made.directory, tmp_path / "new.jsonl", resume=True, **changes)

    @pytest.mark.parametrize("cut", [1, 30, 10_000])
    def test_an_inventory_that_lost_its_end_is_made_again_from_the_source(self, tmp_path: Path, cut: int) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        regrade(made.directory, output, **NUMBER)
        before, inventory = files_in(tmp_path), RunArtifacts(output).inventory
        inventory.write_bytes(inventory.read_bytes()[:-cut])

        regrade(made.directory, output, resume=True, **NUMBER)

        after = files_in(tmp_path)
        assert (after[inventory], after[output]) == (before[inventory], before[output])

    def test_an_inventory_of_other_words_is_refused(self, tmp_path: Path) -> None:
        made = two_shards(tmp_path)
        output = tmp_path / "new.jsonl"
        regrade(made.directory, output, **NUMBER)
        inventory = RunArtifacts(output).inventory
        inventory.write_bytes(inventory.read_bytes().replace(b"2+2?", b"2+3?"))

        with pytest.raises(CorruptArtifactError, match="not the inventory"):
            regrade(made.directory, output, resume=True, **NUMBER)

    def test_a_source_that_went_on_since_is_another_source(self, tmp_path: Path) -> None:
        made = plan(tmp_path / "bench", shards=1, tasks=2)
        fill_all(made, lambda task, _: failed(terminal=False) if task else answered(0.0))
        source = made.shards[0].rollouts
        regrade(source, tmp_path / "new.jsonl", **NUMBER)
        fill_all(made, lambda task, _: answered(1.0) if task else [])

        with pytest.raises(IdentityError, match=r"reverify\.source_digest"):
            regrade(source, tmp_path / "new.jsonl", resume=True, **NUMBER)


def test_what_was_merged_since_the_output_was_looked_at_is_not_replaced(tmp_path: Path) -> None:
    made = two_shards(tmp_path)
    manifest = read_manifest(made.shards[0].manifest)
    assert manifest is not None
    merge_paths([made.directory], made.merged.rollouts)
    before = files_in(tmp_path)

    with pytest.raises(RefusedError, match="merged result"):
        prepare_output(made.merged, lambda: iter([b"{}\n"]), manifest, overwrites=True, fence=lambda: None)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("has_manifest", [True, False], ids=["a-run", "files-without-a-manifest"])
def test_what_was_collected_since_the_output_was_looked_at_is_not_replaced(tmp_path: Path, has_manifest: bool) -> None:
    made = two_shards(tmp_path)
    target = made.shards[0]
    manifest = read_manifest(target.manifest)
    assert manifest is not None
    if not has_manifest:
        target.manifest.unlink()
    before = files_in(tmp_path)

    with pytest.raises(RefusedError):
        prepare_output(target, lambda: iter([b"{}\n"]), manifest, overwrites=has_manifest, fence=lambda: None)

    assert files_in(tmp_path) == before
