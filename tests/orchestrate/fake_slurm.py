"""Programs named sbatch, squeue, sacct and scontrol for what a real scheduler cannot be made to do.

Jobs are lines of ``jobs`` in the folder: ``id|name|state``. What each program does is a shell fragment of the test.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Records the job under its name and prints its id, as sbatch does.
ACCEPT = """
script="${@: -1}"
name=$(sed -n "s/^#SBATCH --job-name=//p" "$script" | head -1 | tr -d "'")
count=$(sed -n "s/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p" "$script")
id=$(( $(cat "$HERE/next" 2>/dev/null || echo 100) + 1 )); echo $id > "$HERE/next"
if [ -n "$count" ]; then for k in $(seq 0 $count); do echo "${id}_$k|$name|PENDING" >> "$HERE/jobs"; done
else echo "$id|$name|PENDING" >> "$HERE/jobs"; fi
"""
LIST = """
for a in "$@"; do case $a in --name=*) names=${a#--name=};; esac; done
touch "$HERE/jobs"
while IFS='|' read -r id name state; do case ",$names," in *",$name,"*) echo "$id|$state|None";; esac; done < "$HERE/jobs"
"""


class FakeSlurm:
    """``directory`` goes first on PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.program("sbatch", f"{ACCEPT}\necho $id")
        self.program("squeue", LIST)
        self.program("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
        self.program("scontrol", "echo 'MaxArraySize            = 1001'")
        self.program("srun", "exit 1")

    def program(self, name: str, text: str) -> None:
        """Make the program ``name`` do ``text``; each call is counted."""
        path = self.directory / name
        path.write_text(f'#!/bin/bash\nHERE="{self.directory}"\necho "$@" >> "$HERE/{name}.calls"\n{text}\n')
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """The arguments of every call of ``name``, those for finishers aside."""
        path = self.directory / f"{name}.calls"
        return [line for line in path.read_text().splitlines() if "gym-finish-" not in line] if path.exists() else []

    def jobs(self) -> list[list[str]]:
        """Id, name and state of every shard's job that was accepted."""
        return [job for job in self._accepted() if not job[1].startswith("gym-finish-")]

    def finishers(self) -> list[list[str]]:
        """The same of the jobs that follow all others of a benchmark."""
        return [job for job in self._accepted() if job[1].startswith("gym-finish-")]

    def _accepted(self) -> list[list[str]]:
        path = self.directory / "jobs"
        return [line.split("|") for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def env(self) -> dict[str, str]:
        """What makes programs find these first."""
        return {"PATH": f"{self.directory}{os.pathsep}{os.environ['PATH']}"}
