"""A merge in a process without threads, shared out however small it is. Arguments: source, target, and
"full" for a full disk or "killed" for helpers that are killed at their first write.

    python -m tests.merge.shared_out SOURCE TARGET [full|killed]

Prints what it raised, and how many processes but this one wrote rows, and computed figures of tasks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collector.durable import StagedFile
from collector.errors import GymEvalError
from merge import aggregate
from merge.command import merge_paths
from merge.inputs import read_shards
from merge.publication import publish
from merge.rows import blocks as row_blocks


def main(source: str, target: str, upset: str = "") -> None:
    for module in (aggregate, publish, read_shards):
        module._WORTH_IT = 0
    row_blocks._STRETCH = 2000
    aggregate._GROUPS = 3
    writers, said = os.pipe()
    write_at, here = StagedFile.write_at, os.getpid()

    def told(file: StagedFile, offset: int, lines: Sequence[memoryview]) -> None:
        os.write(said, b"%d\n" % os.getpid())
        if upset == "full":
            raise OSError(28, "No space left on device")
        if upset == "killed" and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        write_at(file, offset, lines)

    computers, computed = os.pipe()
    groups = aggregate._groups

    def told_groups(*arguments: Any) -> bytes:
        os.write(computed, b"%d\n" % os.getpid())
        return groups(*arguments)

    StagedFile.write_at, aggregate._groups = told, told_groups
    raised = None
    try:
        merge_paths([source], Path(target))
    except GymEvalError as error:
        raised = [type(error).__name__, str(error)]
    os.close(said)
    os.close(computed)
    others, more = ({int(pid) for pid in os.read(end, 1 << 16).split()} - {os.getpid()} for end in (writers, computers))
    print(json.dumps({"raised": raised, "others": len(others), "with figures": len(more)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
