"""What a submission works with and its owner may want to know, on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrate.config.submit import SubmitConfig


def tell_notes(config: SubmitConfig, left_out: Mapping[str, str], *, command: str = "submit") -> None:
    """Say what is idle, what jobs would look for in vain, and which exports of the YAML file, by name, will not be made."""
    from orchestrate.config.gpus import gpu_warning
    from orchestrate.config.loopback import loopback_warning
    from orchestrate.submission.export_settings import export_servers

    loopback = loopback_warning(config, export_servers(config, os.environ))
    advice = "write a host name that the nodes know, unless a server listens there on every node"
    for warning in filter(None, [gpu_warning(config), loopback and f"{loopback}; {advice}"]):
        print(f"gym eval {command}: warning: {warning}", file=sys.stderr)
    for name, reason in left_out.items():
        print(f"gym eval {command}: note: export.{name} is left out: {reason}", file=sys.stderr)
