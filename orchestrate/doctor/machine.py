"""The machine at hand and its containers: the interpreter, and the runtime for services that want an image."""

from __future__ import annotations

import shutil
import sys
from typing import Any, Final

from orchestrate.doctor.finding import Finding, fail, ok
from orchestrate.scheduler import ask_program
from orchestrate.version import package_version

_RUNTIMES: Final = ("enroot", "apptainer", "singularity", "podman", "docker")


def check_machine() -> Finding:
    """The program and its interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return ok("program", f"gym-eval {package_version()}, Python {version}, {sys.executable}")


def check_containers(services: dict[str, Any], *, on_slurm: bool) -> Finding:
    """Whether containers can be started the way services ask for them: by srun --container-image, which Pyxis offers."""
    wanted = [name for name, service in services.items() if getattr(service, "container", None)]
    has_pyxis = on_slurm and "--container-image" in ask_program(["srun", "--help"]).text
    runtimes = [name for name in _RUNTIMES if shutil.which(name) is not None]
    found = "Pyxis (srun --container-image)" if has_pyxis else ", ".join(runtimes) or "none"
    if wanted and not has_pyxis:
        advice = "Ask for Pyxis, or start the container in the service's own command."
        return fail("containers", f"{', '.join(wanted)} want an image; found: {found}", advice)
    return ok("containers", found if wanted else f"no service wants one; found: {found}")
