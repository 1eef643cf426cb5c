"""What the doctor finds on a login node that is reached by ssh: the same program looks, where the jobs will be submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from collector.errors import UnavailableError
from orchestrate.doctor.finding import Finding, fail, ok
from orchestrate.remote.ssh import NO_CONNECTION, LoginNode, run_script

_SUBJECT = "login node"


def check_there(node: LoginNode, output: Path, *, on_nodes: bool) -> Iterator[Finding]:
    """Whether the login node is reached and has the program, then all that it finds there; ``output`` is a path of its own."""
    arguments = ["doctor", "--json", "--path", str(output), *(["--nodes"] if on_nodes else [])]
    try:
        done = run_script(node, f"{node.line(arguments)}\n")
    except UnavailableError as error:
        yield fail(_SUBJECT, error.what, error.fix)
        return
    if done.returncode == NO_CONNECTION:
        yield fail(
            _SUBJECT, f"{node.hostname}: ssh does not get there", "Keys and host keys have to be set up: it asks nothing"
        )
        return
    try:
        found = [Finding.model_validate(item) for item in json.loads(done.stdout)]
    except (ValueError, TypeError, ValidationError):
        what = f"{node.hostname}: {node.program} eval doctor found nothing (exit code {done.returncode})"
        yield fail(_SUBJECT, what, "Install this program there, and name it in compute's remote_program")
        return
    yield ok(_SUBJECT, f"{node.hostname}: what follows was found there")
    yield from found
