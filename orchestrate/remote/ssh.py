"""One OpenSSH connection to a login node: the first command opens it, those of the next minute use it.

BatchMode: a question for a password or an unknown host key is an error at once, never a prompt nobody sees.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector import durable
from collector.errors import UnavailableError

#: What ssh itself ends with when it has no connection, or lost it.
NO_CONNECTION: Final = 255
#: Seconds that a connection stays open after the last command that used it.
_PERSIST_S: Final = 60
_CONNECT_TIMEOUT_S: Final = 15
#: The path of a socket may have 107 bytes, of which ssh needs a hash of 40 and, while it makes it, 17 more.
_LONGEST_SOCKET_DIR: Final = 107 - 1 - 40 - 17


@dataclass(frozen=True, slots=True)
class LoginNode:
    """Where the program runs: ``hostname`` as ssh knows it, the program there, and the directory it starts in."""

    hostname: str
    program: str = "gym"
    directory: str | None = None

    def line(self, arguments: Sequence[str]) -> str:
        """The shell line that runs ``gym eval ARGUMENTS`` there."""
        # The program may be several words, such as a container's launcher, so it stands as it is written.
        start = f"cd {shlex.quote(self.directory)} && " if self.directory else ""
        return f"{start}exec {self.program} eval {shlex.join(arguments)}"


def run_there(node: LoginNode, arguments: Sequence[str]) -> int:
    """Run ``gym eval ARGUMENTS`` on ``node`` with this terminal's streams; its exit code. Raises UnavailableError."""
    code = _call([*_ssh(node), node.line(arguments)])
    if code == NO_CONNECTION:
        raise lost(node, "Run the command again.")
    return code


def run_script(node: LoginNode, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script on ``node``, sent as its input, so that neither a file nor an argument list holds it.

    Output is captured, messages go to this terminal. Raises UnavailableError without ssh.
    """
    try:
        return subprocess.run(
            [*_ssh(node), "exec sh -s"], input=script, stdout=subprocess.PIPE, text=True, check=False, errors="replace"
        )
    except FileNotFoundError as error:
        raise UnavailableError("ssh is not installed here.", "Install an OpenSSH client.", node.hostname) from error


def lost(node: LoginNode, fix: str) -> UnavailableError:
    """The error of a connection that could not be made, or was cut."""
    return UnavailableError("the connection could not be made, or was cut.", fix, node.hostname)


def _call(command: list[str]) -> int:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError as error:
        raise UnavailableError("ssh is not installed here.", "Install an OpenSSH client.") from error


def _ssh(node: LoginNode) -> list[str]:
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(_CONNECT_TIMEOUT_S),
        # A cut that no packet announces is noticed after this long.
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
        "ControlMaster": "auto",
        "ControlPath": f"{_socket_dir()}/%C",
        "ControlPersist": str(_PERSIST_S),
    }
    return ["ssh", "-T", *(f"-o{key}={value}" for key, value in options.items()), "--", node.hostname]


def _socket_dir() -> Path:
    """A directory of this user's own with a short name."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "gym-eval" if runtime else Path(tempfile.gettempdir()) / f"gym-eval-{os.geteuid()}"
    if len(os.fsencode(path)) > _LONGEST_SOCKET_DIR:
        path = Path("/tmp") / f"gym-eval-{os.geteuid()}"  # noqa: S108 - made for this user alone, and checked below
    durable.make_dir(path)
    info = path.stat()
    if info.st_uid != os.geteuid():
        raise UnavailableError("it belongs to another user.", "Set XDG_RUNTIME_DIR to a directory of your own.", path)
    path.chmod(0o700)
    return path
