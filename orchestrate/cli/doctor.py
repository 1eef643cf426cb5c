"""``gym eval doctor``: whether this machine, the cluster and the storage are what a run relies on."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser

if TYPE_CHECKING:
    from orchestrate.config.compute import SlurmCompute
    from orchestrate.config.load import Loaded
    from orchestrate.doctor.finding import Finding


def main(argv: list[str]) -> int:
    """Print a line for each finding. Return 0 when a run would work, 5 when something would keep it from that."""
    args = _parser().parse_args(argv)
    from orchestrate.doctor.finding import Level

    found = list(_findings(args))
    if args.json:
        import json

        print(json.dumps([finding.model_dump() for finding in found], indent=2, ensure_ascii=False))
    else:
        from orchestrate.cli.tables import terminal_width, wrapped

        print("\n".join(wrapped(_line(finding), terminal_width(), indent="      ") for finding in found))
    return 5 if any(finding.level is Level.FAIL for finding in found) else 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval doctor",
        description="Check what a run relies on. Example: gym eval doctor --config eval.yaml --nodes",
        epilog="Exit code 5 when something would keep a run from working.",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="YAML", help="check for this configuration")
    parser.add_argument(
        "--path", type=Path, metavar="DIR", help="the output path to check; default: the configuration's, or here"
    )
    parser.add_argument(
        "--nodes", action="store_true", help="also run a short job on two nodes: storage and clocks as they see them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _findings(args: argparse.Namespace) -> Iterator[Finding]:
    from orchestrate.doctor.cluster import check_cluster
    from orchestrate.doctor.machine import check_containers, check_machine
    from orchestrate.doctor.packages import check_packages
    from orchestrate.doctor.storage import check_nodes, check_storage

    yield check_machine()
    yield from check_packages()
    loaded: Loaded | None = None
    if args.config is not None:
        loaded, findings = _load(args.config)
        yield from findings
    if loaded is not None:
        yield from _addresses(loaded)
    compute = _slurm_of(loaded)
    if compute is not None and compute.hostname is not None and loaded is not None:
        from orchestrate.doctor.there import check_there
        from orchestrate.remote.ssh import LoginNode

        node = LoginNode(compute.hostname, compute.remote_program, compute.remote_dir)
        yield from check_there(node, args.path or loaded.config.job.output_path, on_nodes=args.nodes)
        return
    on_slurm = compute is not None or (loaded is None and shutil.which("sbatch") is not None)
    services: dict[str, Any] = dict(loaded.config.services) if loaded is not None else {}
    if on_slurm:
        shards = sum(b.shards for b in loaded.config.driver.benchmarks.values()) if loaded is not None else 0
        yield from check_cluster(compute, shards=shards)
    yield check_containers(services, on_slurm=on_slurm)
    path = args.path or (loaded.config.job.output_path if loaded is not None else Path.cwd())
    yield from check_storage(path.absolute())
    if args.nodes and on_slurm:
        yield from check_nodes(path.absolute(), compute)


def _load(file: Path) -> tuple[Loaded | None, list[Finding]]:
    from collector.errors import GymEvalError
    from orchestrate.config.compose import compose_file
    from orchestrate.config.load import load_config
    from orchestrate.doctor.finding import fail, ok
    from orchestrate.submission.checks import check_loaded
    from orchestrate.submission.export_settings import settled_exports

    try:
        loaded = settled_exports(load_config(compose_file(file, []), where=file, environ=os.environ), os.environ).loaded
        check_loaded(loaded, where=file)
    except GymEvalError as error:
        return None, [fail("configuration", str(error), "")]
    return loaded, [ok("configuration", f"{file}: {counted(len(loaded.config.driver.benchmarks), 'benchmark')}")]


def _addresses(loaded: Loaded) -> Iterator[Finding]:
    from orchestrate.config.loopback import loopback_warning
    from orchestrate.doctor.finding import warn
    from orchestrate.submission.export_settings import export_servers

    if (text := loopback_warning(loaded.config, export_servers(loaded.config, os.environ))) is not None:
        advice = "Write a host name that the nodes know, unless a server listens there on every node."
        yield warn("addresses", text, advice)


def _slurm_of(loaded: Loaded | None) -> SlurmCompute | None:
    from orchestrate.config.compute import SlurmCompute

    compute = loaded.config.the_compute if loaded is not None else None
    return compute if isinstance(compute, SlurmCompute) else None


def _line(finding: Finding) -> str:
    advice = f". {finding.advice}" if finding.advice else ""
    return f"{finding.level:<4}  {finding.subject}: {finding.text}{advice}"
