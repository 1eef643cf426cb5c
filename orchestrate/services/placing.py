"""A node of the job other than the first: its address, a free port on it, and the srun that starts something there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from collector.errors import ServiceError
from collector.text.counted import counted
from orchestrate.config.pools import Placement
from orchestrate.services import ports

#: What a service on another node listens on: the collector comes from outside.
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the port is chosen by the job, on a node that the job has
#: Seconds for one question to Slurm, or one step of the job that is over at once.
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Site:
    """A place on a node. ``step`` starts what follows it there."""

    address: str
    port: int
    step: tuple[str, ...]


async def find_site(where: str, placement: Placement, port: int | None, environ: Mapping[str, str]) -> Site:
    """The place that ``placement`` means in this job. Raises ServiceError, about ``where``, when Slurm does not say."""
    group = f"_HET_GROUP_{placement.group}" if placement.group is not None else ""
    nodes = environ.get(f"SLURM_JOB_NODELIST{group}")
    if nodes is None:
        raise ServiceError("its node pool is not in this job.", "Submit again: pools were added since.", where)
    names = (await _said(where, ["scontrol", "show", "hostnames", nodes], environ)).split()
    if placement.node >= len(names):
        raise ServiceError(
            f"its node pool is not in this job, which has {counted(len(names), 'node')}.", "Submit again.", where
        )
    node = names[placement.node]
    facts = (await _said(where, ["scontrol", "show", "node", node, "--oneliner"], environ)).split()
    # The address by which Slurm itself reaches the node: a node's own idea of its name may be a loopback address.
    address = next((fact.partition("=")[2] for fact in facts if fact.startswith("NodeAddr=")), node)
    step = step_on(node, placement.group)
    return Site(address, await _port_there(where, step, port, environ), step)


async def _port_there(where: str, step: tuple[str, ...], port: int | None, environ: Mapping[str, str]) -> int:
    """A port that is free there, ``port`` if it is given. Raises ServiceError when something listens on that one."""
    asked = [] if port is None else [str(port)]
    said = await _said(where, [*step, sys.executable, "-I", ports.__file__, *asked], environ)
    # A site's task prolog may write to the same output, before the program does.
    last = said.split()[-1:]
    if not last or not last[0].isdecimal():
        raise ServiceError(f"srun gave no free port, but {said[-80:]!r}.", "Try again.", where)
    if port is not None and last[0] == "0":
        raise taken(where, port)
    return int(last[0])


def taken(where: str, port: int) -> ServiceError:
    """What to say of a service whose own port has another server: whatever answers there would be measured in its place."""
    what = f"something listens on its port {port} already, and would be measured in its place."
    return ServiceError(what, "Leave port out, so that each job chooses a free one, or end what listens there.", where)


def step_on(node: str, group: int | None) -> tuple[str, ...]:
    """The srun of one task on ``node`` that shares what the job holds there."""
    het = (f"--het-group={group}",) if group is not None else ()
    return ("srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *het)


async def _said(where: str, command: list[str], environ: Mapping[str, str]) -> str:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=dict(environ)
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise ServiceError(f"{command[0]} gave no answer within {_TIMEOUT_S:.0f} s.", "Try again.", where) from error
        finally:
            # Also when the job is told to stop meanwhile: a step that waits for its node would outlive the wait.
            if process.returncode is None:
                process.kill()
                await process.wait()
    except OSError as error:
        raise ServiceError(
            f"{command[0]} cannot be run: {error.strerror}.", "A node pool needs Slurm's programs.", where
        ) from error
    if process.returncode:
        raise ServiceError(f"{command[0]}: {' '.join(err.decode(errors='replace').split())}.", "Check its node_pool.", where)
    return out.decode().strip()
