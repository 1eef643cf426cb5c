"""A real sshd on loopback that stands for a cluster's login node, and an ssh that finds it under the name ``login``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import SEARCH_PATH, free_ports, wait_for
from tests.support.requirements import require

SSHD_CONFIG = """Port {port}
ListenAddress 127.0.0.1
HostKey {top}/host_key
AuthorizedKeysFile {top}/authorized_keys
PidFile {top}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PermitUserEnvironment no
"""
SSH_CONFIG = """Host login
  HostName 127.0.0.1
  Port {port}
  IdentityFile {top}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {top}/known_hosts
  StrictHostKeyChecking accept-new
"""


@dataclass(frozen=True, slots=True)
class LoginNode:
    """``env`` makes ``ssh login`` lead to it. Each connection that was made is a line of the server's log."""

    top: Path
    port: int
    process: subprocess.Popen[bytes]
    sockets: Path

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.top}/bin{os.pathsep}{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(self.sockets)}

    def connections(self) -> int:
        """How often somebody logged in."""
        return (self.top / "sshd.log").read_text(errors="replace").count("Accepted publickey")

    def commands(self) -> list[str]:
        """The argument lists with which ssh was called."""
        path = self.top / "ssh.calls"
        return path.read_text().splitlines() if path.exists() else []

    def cut(self) -> None:
        """End every connection at once, as a network does: nobody says good-bye."""
        if self.process.poll() is not None:
            return
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            subprocess.run(["kill", "-9", pid], check=False)


@contextmanager
def login_node(top: Path) -> Generator[LoginNode]:
    """A running one; the test is skipped, or fails under CI, where sshd is not installed or the user is not root."""
    sshd = shutil.which("sshd", path=SEARCH_PATH)
    lacks = ([] if sshd else ["sshd"]) + ([] if os.geteuid() == 0 else ["root"])
    require("a login node", lacks)
    (top / "bin").mkdir(parents=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(top / name)], check=True)
    shutil.copy(top / "user_key.pub", top / "authorized_keys")
    (port,) = free_ports(1)
    (top / "sshd_config").write_text(SSHD_CONFIG.format(port=port, top=top))
    (top / "ssh_config").write_text(SSH_CONFIG.format(port=port, top=top))
    wrapper = top / "bin" / "ssh"
    real = shutil.which("ssh")
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> "{top}/ssh.calls"\nexec {real} -F "{top}/ssh_config" "$@"\n')
    wrapper.chmod(0o755)
    process = subprocess.Popen([str(sshd), "-D", "-f", str(top / "sshd_config"), "-E", str(top / "sshd.log")])
    # Sockets have short names only.
    node = LoginNode(top, port, process, Path(tempfile.mkdtemp(prefix="g", dir="/tmp")))
    try:
        wait_for(lambda: "Server listening" in (top / "sshd.log").read_text() if (top / "sshd.log").exists() else False, 20)
        yield node
    finally:
        node.cut()
        process.terminate()
        process.wait(10)
        shutil.rmtree(node.sockets, ignore_errors=True)
