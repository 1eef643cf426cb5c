"""Every error raised on purpose, with the exit code a command ends with.

GymEvalError
├── RequestError            2   the command, its configuration or its dataset is wrong
│   ├── ConfigError             a file and a key
│   └── DatasetError            a file and a line
├── NotFoundError           3   a run, a file or a rollout that is not there
├── RefusedError            4   doing it would lose, double or mix results
│   ├── LockHeldError           another collector owns the shard
│   ├── FencedError             a newer session began; this one must stop
│   ├── IdentityError           the saved work belongs to another experiment
│   └── CorruptArtifactError    a file says what no crash explains
│       └── BrokenInventoryError    the inventory is not the one that the manifest was written for
├── UnavailableError        5   a scheduler, a service or an endpoint does not answer
│   ├── ServiceError            a service of the job exited or never became ready
│   └── StorageError            a disk that is full or fails
├── IncompleteError         6   the run is valid, and not all of it is done
├── NothingMeasuredError    7   every rollout is final and none was measured
└── NoTasksError            8   there is nothing to evaluate

`gym eval compare` alone ends with 9 when a gate failed or could not be decided. Anything else that escapes is a bug: exit
code 1, with its traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class GymEvalError(Exception):
    """Something a user or an operator can act on: where, what is wrong, what to do. One line, and it pickles."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, fix: str = "", where: str | Path = "") -> None:
        super().__init__(what, fix, where)
        self.what = what
        self.fix = fix
        self.where = str(where)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        if not self.fix:
            return f"{place}{self.what}"
        # What a server said ends as it likes, and our advice must not run into it.
        stop = "" if self.what.rstrip().endswith((".", "!", "?", ":")) else "."
        return f"{place}{self.what.rstrip()}{stop} {self.fix}"


class RequestError(GymEvalError):
    """The command, its configuration or its dataset is wrong; nothing was created."""

    exit_code = 2


class ConfigError(RequestError):
    """A key of a configuration is unknown, missing or has a value that cannot be used."""


class DatasetError(RequestError):
    """A dataset row cannot be read or lacks what the prompt, the agent or the verifier needs."""


class NotFoundError(GymEvalError):
    """A run, a file or a rollout that was named is not there."""

    exit_code = 3


class RefusedError(GymEvalError):
    """Going on would lose, double or mix results; nothing was changed."""

    exit_code = 4


class LockHeldError(RefusedError):
    """Another collector owns the shard path."""


class FencedError(RefusedError):
    """A newer session began on this shard, or its lock is no longer ours: stop without writing."""


class IdentityError(RefusedError):
    """The saved work belongs to another experiment; the message lists each field that differs."""


class CorruptArtifactError(RefusedError):
    """A file of a run says what no crash explains. ``line`` counts from 1; 0 means the file as a whole."""

    def __init__(self, path: str | Path, line: int, what: str, fix: str = "") -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(what, fix or "No crash explains it: restore the file, or start a new run.", where)
        self.args = (str(path), line, what, fix)


class BrokenInventoryError(CorruptArtifactError):
    """The inventory is not the one that the manifest was written for; what is missing at its end may be made again."""


class UnavailableError(GymEvalError):
    """A scheduler, a service or an endpoint does not answer; trying again later may help."""

    exit_code = 5


class ServiceError(UnavailableError):
    """A service of the job exited, never became ready, or serves another model."""


class StorageError(UnavailableError):
    """A disk is full or fails; what was recorded before stays recorded."""


def kind_of(error: OSError) -> type[RefusedError | StorageError]:
    """What a file that could not be read or written is to the user: forbidden by its owner, or its disk fails."""
    return RefusedError if isinstance(error, PermissionError) else StorageError


class IncompleteError(GymEvalError):
    """Everything recorded is valid, and some rollouts are still unfinished."""

    exit_code = 6


class NothingMeasuredError(GymEvalError):
    """Every rollout is final and none of them was measured: there is no score."""

    exit_code = 7


class NoTasksError(GymEvalError):
    """The dataset, the limit or the filter leaves nothing to evaluate."""

    exit_code = 8
