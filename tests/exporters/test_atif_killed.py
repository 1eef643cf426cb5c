"""An ATIF folder that is replaced is the old one, none or the new one, wherever the export is killed; the next export is whole."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from collector.settings import RetrySettings
from exporters.tail import finish_benchmark
from tests.merge.build import Plan, answered, failed, fill, fill_all, plan
from tests.support.crash import run_in_fork


class Replaced:
    """A run whose result was exported and has another row since, as often as it is needed."""

    def __init__(self, root: Path) -> None:
        self.root, self.saved, self.folder = root / "run", root / "saved", root / "run" / "atif"
        self.made: Plan = plan(self.root / "bench", shards=2, tasks=3)
        fill_all(self.made, lambda task, _: [failed(terminal=False)] * 3 if task == 0 else answered())
        self.export(max_attempts=3)
        self.old = self.files
        fill(self.made, 0, lambda task, _: answered(text="at last") if task == 0 else [])
        # The new result is merged already: what is killed is the export alone.
        self.finish({}, max_attempts=4)
        self.root.rename(self.saved)

    @property
    def files(self) -> dict[str, bytes] | None:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()} if self.folder.exists() else None

    def again(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.saved, self.root)

    def export(self, *, max_attempts: int = 4) -> None:
        self.finish({"atif": {"output_dirpath": str(self.folder), "agent_version": "1.0.0"}}, max_attempts=max_attempts)

    def finish(self, exports: dict[str, dict[str, str]], *, max_attempts: int) -> None:
        retry = RetrySettings(max_attempts=max_attempts)
        done = finish_benchmark(self.made.merged, self.made.shards, benchmark="bench", retry=retry, exports=exports)
        assert all(export.is_success for export in done.exports.values()), done.exports


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_folder_is_never_half_wherever_its_replacement_is_killed(tmp_path: Path) -> None:
    run = Replaced(tmp_path)
    run.again()
    assert run_in_fork(run.export, 0)[0] == 0
    new = run.files
    assert new is not None
    assert new.keys() > (run.old or {}).keys()
    seen: list[str] = []
    fatal, status = 0, -1

    while status:
        fatal += 1
        run.again()
        status, _ = run_in_fork(run.export, fatal)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, f"disk call {fatal}"
        found = run.files
        assert found in (run.old, None, new), f"disk call {fatal}: half of a folder"
        seen.append("none" if found is None else "old" if found == run.old else "new")

        assert run_in_fork(run.export, 0)[0] == 0, f"disk call {fatal}: the next export failed"

        assert run.files == new, f"disk call {fatal}"
        assert [path.name for path in run.root.iterdir() if "atif" in path.name] == ["atif"], f"disk call {fatal}"

    # Old until the first rename, none between the two, new from then on.
    assert seen == sorted(seen, key=["old", "none", "new"].index)
    assert seen.count("none") == 1
