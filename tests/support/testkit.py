"""Makes the test kit's plug-ins installed, for this process and for those it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PLUGINS = Path(__file__).parent / "plugins"
ROOT = Path(__file__).parents[2]


def install() -> None:
    """Put the plug-ins' distribution on the path, where entry points are found."""
    if str(PLUGINS) not in sys.path:
        sys.path.append(str(PLUGINS))


def environment() -> dict[str, str]:
    """The environment of a child process that sees the plug-ins and the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT)])}
