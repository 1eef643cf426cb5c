"""``gym eval submit`` for a configuration with ``compute.*.hostname``: the same command on the cluster's login node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrate.remote.runs import RemoteRun


def submitted_there(config: Mapping[str, Any], config_file: Path, args: argparse.Namespace) -> int | None:
    """The exit code of the submission on the login node; None for a configuration that is submitted from here.

    Raises UnavailableError when the connection cannot be made or is cut; the same command again completes what it began.
    """
    from orchestrate.remote.forward import node_of, remember_submission, submit_there

    node = node_of(config)
    if node is None:
        return None
    is_preview = args.dry_run
    options = ["--dry-run"] if is_preview else ["--json"]
    options += ["--new"] if args.new else []
    options += ["--json"] if is_preview and args.json else []
    code, said = submit_there(node, config, config_file=config_file, options=options)
    run = None if is_preview else remember_submission(node, said, at=datetime.now(UTC).isoformat(timespec="seconds"))
    if run is None or args.json:
        print(said, end="")
    else:
        print(_as_text(run, said))
    return _watched(run) if args.wait and run is not None and code == 0 else code


def _as_text(run: RemoteRun, record: str) -> str:
    import json

    lines = [f"run {run.name}  {run.hostname}:{run.run_dir}"]
    lines += [f"  {job['benchmark']}: {job['error'] or 'job ' + job['job_id']}" for job in json.loads(record)["benchmarks"]]
    lines.append(f"Follow it with: gym eval status {run.name}")
    return "\n".join(lines)


def _watched(run: RemoteRun) -> int:
    from orchestrate.remote.ssh import run_there

    sys.stdout.flush()
    return run_there(run.node, ["watch", run.run_dir])
