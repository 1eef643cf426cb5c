"""Limits of a machine that many people share: how many threads a command may have, and how much memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

#: Address space below which numpy and scipy were seen to hang, to end the program or to call it interrupted; at 216,000 kB they
#: did with two threads, above it never with one.
_LEAST_BYTES: Final = 256 << 20
NO_MEMORY: Final = "there is not enough memory. Allow it more (ulimit -v), or use another machine."


def leave_linear_algebra_alone() -> None:
    """Nothing here uses a library's threads for matrices.

    It starts one a processor and takes address space for each, and where a limit allows no thread it ends the program as if
    somebody had pressed Ctrl-C.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@contextmanager
def one_thread_for_matrices() -> Generator[None]:
    """A library for matrices that is loaded in this block starts no threads; programs that are started behind it may."""
    is_free = "OPENBLAS_NUM_THREADS" not in os.environ
    leave_linear_algebra_alone()
    try:
        yield
    finally:
        if is_free:
            del os.environ["OPENBLAS_NUM_THREADS"]


def is_too_small_for_matrices() -> bool:
    """Whether a limit on address space leaves no room for the library, which then ends the program, or never returns."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit != resource.RLIM_INFINITY and limit < _LEAST_BYTES


def is_of_memory(error: MemoryError | ImportError) -> bool:
    """Whether ``error`` says that memory is short, and not that something is wrong."""
    # What a library's loader says where there is no room for it.
    told = ("failed to map segment", "cannot allocate memory")
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in told)
