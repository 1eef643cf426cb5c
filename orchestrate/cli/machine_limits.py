"""Limits of a machine that many people share: how many threads a command may have, and how much memory."""

from __future__ import annotations

import os
from typing import Final

NO_MEMORY: Final = "there is not enough memory. Allow it more (ulimit -v), or use another machine."


def leave_linear_algebra_alone() -> None:
    """Nothing here uses a library's threads for matrices.

    It starts one a processor and takes address space for each, and where a limit allows no thread it ends the program as if
    somebody had pressed Ctrl-C.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def is_of_memory(error: MemoryError | ImportError) -> bool:
    """Whether ``error`` says that memory is short, and not that something is wrong."""
    # What a library's loader says where there is no room for it.
    told = ("failed to map segment", "cannot allocate memory")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in told)
