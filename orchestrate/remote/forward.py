"""A run on a cluster that this machine reaches by ssh: the same program does the work on the login node.

Nothing is decided twice: the configuration is composed here, sent over the connection, and submitted there under a name that
is the same each time, so that a submission cut in the middle is completed by running the command again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from collector.errors import NotFoundError, RequestError
from collector.text.counted import counted
from orchestrate.remote.runs import RemoteRun, remember_remote, remote_runs
from orchestrate.remote.ssh import NO_CONNECTION, LoginNode, lost, run_script, run_there
from orchestrate.runs.index import entries

#: Keys of a compute entry that say how the login node is reached; what is sent does without them.
CONNECTION_KEYS: Final = ("hostname", "remote_program", "remote_dir")
#: host:/path, as scp writes it; the host may carry a user.
_ADDRESS: Final = re.compile(r"(?P<host>[\w.@-]+):(?P<path>/.*)")
_HOST_VARIABLE: Final = re.compile(r"host:([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def forwarded(command: str, run_text: str | None, argv: Sequence[str]) -> int | None:
    """The exit code of ``gym eval COMMAND ARGV`` run where the run is; None when it is on this machine.

    Raises UnavailableError when its login node cannot be reached, NotFoundError when several remote runs fit.
    """
    found = find_remote(run_text)
    if found is None:
        return None
    rest = list(argv)
    if run_text is not None:
        rest[_place_of(run_text, rest)] = found.run_dir
        return run_there(found.node, [command, *rest])
    return run_there(found.node, [command, found.run_dir, *rest])


def _place_of(run_text: str, words: Sequence[str]) -> int:
    """Where RUN stands among ``words``: a benchmark behind its flag may be called as the run begins."""
    places = [place for place, word in enumerate(words) if word == run_text]
    return next((place for place in places if not place or not words[place - 1].startswith("-")), places[0])


def find_remote(run_text: str | None) -> RemoteRun | None:
    """The remote run that ``run_text`` means; None when it means one on this machine. None is the one submitted last."""
    if run_text is None:
        return _last_if_remote()
    if (Path(run_text) / "plan.json").exists() or Path(run_text).is_file():
        return None
    known = remote_runs()
    if address := _ADDRESS.fullmatch(run_text):
        wanted = (address["host"], address["path"].rstrip("/"))
        name = Path(wanted[1]).name
        new = RemoteRun(at="", name=name, run_dir=wanted[1], hostname=wanted[0])
        return next((run for run in known if (run.hostname, run.run_dir) == wanted), new)
    local = [entry.name for entry in entries()]
    exact = [run for run in known if run.name == run_text]
    fitting = exact or [run for run in known if run_text and run.name.startswith(run_text)]
    if not fitting or run_text in local or (not exact and any(name.startswith(run_text) for name in local)):
        return None
    if len(fitting) > 1:
        shown = ", ".join(f"{run.hostname}:{run.run_dir}" for run in fitting[-5:])
        raise NotFoundError(f"{counted(len(fitting), 'run')} fit: {shown}.", "Name one of them.", run_text)
    return fitting[0]


def _last_if_remote() -> RemoteRun | None:
    known, local = remote_runs(), entries()
    if not known or (local and local[-1].at > known[-1].at):
        return None
    return known[-1]


def node_of(config: Mapping[str, Any]) -> LoginNode | None:
    """The login node that a composed configuration names; None when it is submitted from this machine."""
    compute = config.get("compute")
    entry: Any = next(iter(compute.values()), None) if isinstance(compute, dict) else None
    if not isinstance(entry, dict) or not entry.get("hostname"):
        return None
    hostname = str(entry["hostname"])
    if hostname.startswith("-"):
        raise RequestError(f"{hostname!r} is no host name.", "Name it as ssh knows it.", "compute.*.hostname")
    return LoginNode(hostname, str(entry.get("remote_program") or "gym"), entry.get("remote_dir") or None)


def submit_there(
    node: LoginNode,
    config: Mapping[str, Any],
    *,
    config_file: Path,
    options: Sequence[str],
) -> tuple[int, str]:
    """Submit the composed ``config`` on ``node`` with ``options`` of ``gym eval submit``; its exit code and what it printed.

    Variables that ``host:`` names travel over the connection only. Raises UnavailableError when the connection is cut: the
    jobs of a command that had arrived exist, and the same command again submits what is missing.
    """
    script = submit_script(node, config, stem=config_file.stem, options=options, environ=os.environ)
    done = run_script(node, script)
    if done.returncode == NO_CONNECTION:
        raise lost(node, "Run the same command again: it submits only what is missing.")
    return done.returncode, done.stdout


def remember_submission(node: LoginNode, record: str, *, at: str) -> RemoteRun | None:
    """Note the run that ``record``, the JSON printed by the submission, describes; None when it describes none."""
    try:
        data = json.loads(record)
    except ValueError:
        return None
    if not isinstance(data, dict) or "run_dir" not in data:
        return None
    name = str(data.get("gym_job_id"))
    run = RemoteRun(
        at=at, name=name, run_dir=data["run_dir"], hostname=node.hostname, program=node.program, directory=node.directory
    )
    remember_remote(run)
    return run


def submit_script(
    node: LoginNode, config: Mapping[str, Any], *, stem: str, options: Sequence[str], environ: Mapping[str, str]
) -> str:
    """The shell script for the login node. All of it is one function: of a script cut in the middle nothing is run."""
    text = msgspec.json.format(msgspec.json.encode(_without_connection(config)), indent=1).decode()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    mark = f"END_{secrets.token_hex(8)}"
    exports = [f"export {name}={shlex.quote(environ[name])}" for name in sorted(_host_variables(config)) if name in environ]
    # JSON is YAML; the file's name is part of the run's name, so it stays the same at each attempt.
    file = f"{stem}.yaml"
    lines = [
        "main() {",
        *exports,
        "umask 077",
        f'd="${{XDG_STATE_HOME:-$HOME/.local/state}}/gym-eval/incoming/{digest}"',
        'mkdir -p "$d" || exit 5',
        f"cat > \"$d\"/.part.$$ <<'{mark}' || exit 5",
        text,
        mark,
        f'mv "$d"/.part.$$ "$d"/{shlex.quote(file)} || exit 5',
        *([f"cd {shlex.quote(node.directory)} || exit 3"] if node.directory else []),
        f'exec {node.program} eval submit --config "$d"/{shlex.quote(file)} {shlex.join(options)} < /dev/null',
        "}",
        "main",
        "",
    ]
    return "\n".join(lines)


def _without_connection(config: Mapping[str, Any]) -> dict[str, Any]:
    compute: dict[str, Any] = {
        name: {key: value for key, value in entry.items() if key not in CONNECTION_KEYS} if isinstance(entry, dict) else entry
        for name, entry in config["compute"].items()
    }
    return {**config, "compute": compute}


def _host_variables(value: Any) -> set[str]:
    """Every variable that a ``host:NAME`` anywhere in the configuration may mean."""
    if isinstance(value, Mapping):
        return {name for item in value.values() for name in _host_variables(item)}
    if isinstance(value, list):
        return {name for item in value for name in _host_variables(item)}
    found = _HOST_VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return {found[1]} if found else set()
