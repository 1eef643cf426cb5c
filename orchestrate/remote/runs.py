"""Which runs were submitted from here to a login node, so that their names lead there. Losing it loses nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from collector import durable
from orchestrate.remote.ssh import LoginNode
from orchestrate.runs.index import index_path


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a run on ``hostname``, submitted from here for the first time or again."""

    at: str
    name: str
    run_dir: str
    hostname: str
    program: str = "gym"
    directory: str | None = None

    @property
    def node(self) -> LoginNode:
        """Where it is."""
        return LoginNode(self.hostname, self.program, self.directory)


def remote_index_path() -> Path:
    """The index file, beside the one of runs on this machine."""
    return index_path().with_name("remote-runs.jsonl")


def remember_remote(run: RemoteRun) -> None:
    """Add ``run``; a home directory that cannot be written does not matter."""
    path = remote_index_path()
    with suppress(OSError):
        durable.make_dir(path.parent)
        file = durable.AppendFile(path)
        try:
            file.append(msgspec.json.encode(run) + b"\n")
        finally:
            file.close()


def remote_runs() -> list[RemoteRun]:
    """Oldest first; a run that was submitted again stands where it was submitted last."""
    found: dict[tuple[str, str], RemoteRun] = {}
    with suppress(OSError):
        for line in remote_index_path().read_bytes().split(b"\n"):
            with suppress(msgspec.DecodeError):
                run = msgspec.json.decode(line, type=RemoteRun)
                found.pop((run.hostname, run.run_dir), None)
                found[run.hostname, run.run_dir] = run
    return list(found.values())
