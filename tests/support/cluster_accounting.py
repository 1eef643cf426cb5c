"""The accounting of a private cluster: a database server and slurmdbd, up and with the cluster registered."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from tests.support.cluster_settings import CLUSTER, DATABASE, ClusterSettings, slurmdbd_conf
from tests.support.processes import SEARCH_PATH, start_daemon, wait_for

COMMANDS = ["mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacctmgr"]
ACCOUNT = "research"
_SQL = f"""
CREATE DATABASE IF NOT EXISTS {DATABASE};
CREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY 'slurm';
GRANT ALL ON {DATABASE}.* TO 'slurm'@'%';
"""


def start_accounting(
    settings: ClusterSettings, env: dict[str, str], run: Callable[..., str]
) -> dict[str, subprocess.Popen[bytes]]:
    """Start the database and slurmdbd; returns when ``sacctmgr`` answers and the account ``research`` exists."""
    database = _start_database(settings, env)
    conf = settings.directory / "slurmdbd.conf"
    conf.write_text(slurmdbd_conf(settings), encoding="utf-8")
    # slurmdbd refuses a configuration with a password that others may read.
    conf.chmod(0o600)
    slurmdbd = start_daemon(["slurmdbd", "-D"], env=env, log=settings.log("slurmdbd"))
    wait_for(lambda: answers(["sacctmgr", "-n", "list", "cluster"], env), 30, explain=lambda: "slurmdbd does not answer")
    run("sacctmgr", "-i", "-Q", "add", "cluster", CLUSTER)
    run("sacctmgr", "-i", "-Q", "add", "account", ACCOUNT)
    run("sacctmgr", "-i", "-Q", "add", "user", "root", f"account={ACCOUNT}")
    return {"mariadb": database, "slurmdbd": slurmdbd}


def _start_database(settings: ClusterSettings, env: dict[str, str]) -> subprocess.Popen[bytes]:
    data, log, socket = settings.directory / "db", settings.log("mariadb"), settings.database_socket
    with log.open("ab") as output:
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"],
            env={**os.environ, **env, "PATH": SEARCH_PATH},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
        )
    options = ["--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}", "--bind-address=127.0.0.1"]
    # Tests may lose the database with the machine; they must not wait for its disk.
    options += [f"--port={settings.ports.database}", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0"]
    process = start_daemon(["mariadbd", *options], env=env, log=log)
    client = ["mariadb", "--no-defaults", f"--socket={socket}", "-e", _SQL]
    wait_for(lambda: answers(client, env), 60, explain=lambda: log.read_text(encoding="utf-8")[-2000:])
    return process


def answers(command: list[str], env: dict[str, str]) -> bool:
    """Whether a command ends with success within three seconds."""
    full_env = {**os.environ, **env, "PATH": SEARCH_PATH}
    try:
        return subprocess.run(command, env=full_env, capture_output=True, timeout=3, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
