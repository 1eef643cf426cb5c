"""An ATIF export in a process without threads, shared out however small it is. Arguments: rows, folder, and "full" for a full
disk, "killed" for helpers that are killed when they have written half of their first batch, or "alone" for one process.

    python -m tests.exporters.shared_export ROWS FOLDER [full|killed|alone]

Prints the result, and how many processes but this one wrote trajectories.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from collector import durable
from collector.artifacts import RunArtifacts
from exporters.atif import bundle, conversion
from exporters.registry import make_exporter


def main(rows: str, folder: str, upset: str = "") -> None:
    bundle._ALONE = 10**9 if upset == "alone" else 2
    conversion._BATCH = 2000
    writers, said = os.pipe()
    write, here = durable.write_synced, os.getpid()

    def told(place: Path, files: list[tuple[str, bytes]]) -> None:
        os.write(said, b"%d\n" % os.getpid())
        is_helper = os.getpid() != here
        if upset == "full":
            raise OSError(28, "No space left on device", str(place))
        if upset == "killed" and is_helper:
            write(place, [(name, data[:100]) for name, data in files])
            os.kill(os.getpid(), signal.SIGKILL)
        write(place, files)

    durable.write_synced = told
    values = {"output_dirpath": folder, "agent_version": "1.0.0", "session_id": "s"}
    artifacts = RunArtifacts(Path(rows))
    result = make_exporter("atif", values, artifacts).export(artifacts)
    os.close(said)
    others = {int(pid) for pid in os.read(writers, 1 << 16).split()} - {here}
    print(json.dumps({"state": result.state, "said": [result.message, *result.details], "others": len(others)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
