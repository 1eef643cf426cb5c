"""A merge whose system calls are killed or fail, one after the other: the whole command, as a user runs it, under strace."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from merge.command import merge_paths
from merge.publication.projection_check import ProjectionState, check_projection
from tests.merge.build import Plan, answered, failed, fill_all, plan
from tests.support.requirements import require

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
#: What changes a disk or makes it durable, and what is locked.
CALLS = (
    "write",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "fsync",
    "fdatasync",
    "rename",
    "link",
    "unlink",
    "fchmod",
    "flock",
    "mkdir",
)
FAULTS = {
    "write": ("ENOSPC", "EIO"),
    "pwritev": ("ENOSPC", "EIO"),
    "pwritev2": ("ENOSPC", "EIO"),
    "fsync": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO", "ENOSPC"),
    "rename": ("EXDEV", "EIO", "ENOSPC"),
    "unlink": ("EIO",),
    "fchmod": ("EPERM",),
}
#: The command with its rows in several stretches, alone or with everything shared out among processes however little it is.
PROGRAM = """
import sys
from collector.durable import publication
from merge import aggregate
from merge.publication import publish
from merge.inputs import read_shards
from merge.rows import blocks as row_blocks
from orchestrate.cli.main import main
row_blocks._STRETCH, publication._MOST_BYTES = 6000, 2000
if sys.argv[1] == "shared":
    aggregate._WORTH_IT = publish._WORTH_IT = read_shards._WORTH_IT = 0
sys.exit(main(sys.argv[2:]))
"""


class Merge:
    """A merge of two shards over an older target, with a fault or without."""

    def __init__(self, directory: Path, how: str) -> None:
        self.how = how
        self.made: Plan = plan(directory / "b", shards=2, tasks=30, repeats=2)
        fill_all(self.made, lambda task, repeat: [failed(terminal=False), answered(float(task % 2), text="four" * 40 * repeat)])
        self.target = self.made.merged.rollouts
        merge_paths([self.made.directory], self.target)
        self.new = self.target.read_bytes()
        self.inputs = self.input_digests()

    def input_digests(self) -> dict[str, str]:
        files = [path for path in (self.made.directory / "shards").rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def begin(self) -> None:
        """As before the merge: an older target that no receipt speaks of."""
        self.target.write_bytes(b"old\n")
        self.made.merged.receipt.unlink(missing_ok=True)

    def run(self, *strace: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-B", "-c", PROGRAM, self.how]
        words = ["eval", "aggregate", str(self.made.directory), "-o", str(self.target), "--no-health-check"]
        command = ["strace", "-f", "-qq", *strace, *program, *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    def wrong(self) -> list[str]:
        """What a fault must not leave behind."""
        found: list[str] = []
        if self.target.read_bytes() not in {b"old\n", self.new}:
            found.append("a mixture")
        if check_projection(self.made.merged).state not in {ProjectionState.ABSENT, ProjectionState.VERIFIED}:
            found.append("a receipt that lies")
        if self.input_digests() != self.inputs:
            found.append("inputs changed")
        merge_paths([self.made.directory], self.target)
        if self.target.read_bytes() != self.new or check_projection(self.made.merged).state is not ProjectionState.VERIFIED:
            found.append("not mended by the next merge")
        if [path for path in self.made.directory.rglob(".*") if path.suffix == ".tmp"]:
            found.append("leftovers")
        return found


def calls_of(merge: Merge, log: Path) -> dict[str, int]:
    """How often the process that does most of it makes each call."""
    merge.begin()
    done = merge.run("-o", str(log), "-e", f"trace={','.join(CALLS)}")
    assert done.returncode == 0, done.stderr
    found: Counter[tuple[str, str]] = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE))
    return {
        call: max(count for (_, name), count in found.items() if name == call)
        for call in CALLS
        if call in {n for _, n in found}
    }


@pytest.mark.parametrize("how", ["alone", "shared"])
def test_a_merge_killed_at_any_system_call_leaves_the_old_target_or_the_new_one(tmp_path: Path, how: str) -> None:
    require("injecting faults into system calls", [] if shutil.which("strace") else ["strace"])
    merge = Merge(tmp_path, how)
    wrong, killed, points = Counter[str](), 0, 0
    for call, most in calls_of(merge, tmp_path / "log").items():
        for when in range(1, most + 1):
            merge.begin()
            done = merge.run("-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}")
            points += 1
            killed += done.returncode != 0
            wrong.update(merge.wrong())
    print(json.dumps({"how": how, "points": points, "killed": killed, "wrong": wrong}))
    assert not wrong
    assert killed


@pytest.mark.parametrize("how", ["alone", "shared"])
def test_a_merge_whose_system_calls_fail_says_so_and_keeps_the_old_target_or_has_the_new_one(tmp_path: Path, how: str) -> None:
    require("injecting faults into system calls", [] if shutil.which("strace") else ["strace"])
    merge = Merge(tmp_path, how)
    wrong, refused, points = Counter[str](), 0, 0
    for call, most in calls_of(merge, tmp_path / "log").items():
        for error in FAULTS.get(call, ()):
            for when in range(1, most + 1):
                merge.begin()
                fault = f"inject={call}:error={error}:when={when}"
                done = merge.run("-o", os.devnull, "-e", f"trace={call}", "-e", fault)
                points += 1
                refused += done.returncode != 0
                # The fault may meet the very write of the message, and a directory that cannot be synced is no error.
                if done.returncode and call != "write" and os.strerror(getattr(errno, error)) not in done.stderr:
                    wrong[f"{fault}: unexplained: {done.stderr[-300:]}"] += 1
                if not done.returncode and call != "write" and merge.target.read_bytes() != merge.new:
                    wrong[f"{fault}: success without a result"] += 1
                wrong.update(f"{fault}: {what}" for what in merge.wrong())
    print(json.dumps({"how": how, "points": points, "refused": refused, "wrong": wrong}))
    assert not wrong
    assert refused
