"""How a sender says no, and what it says no to."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from merge.publication.receipt import file_sha256


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault of ours
    """What a backend said no to, or that it could not be reached."""


@contextmanager
def refusals() -> Generator[None]:
    """What a client raises becomes Refused: its own errors, and whatever an answer made it raise that it did not understand.

    What is raised in the senders' own code, or by a wrong use of a client, is a bug and stays one.
    """
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        if _is_raised_here(error.__traceback__):
            raise
        is_told = not isinstance(error, LookupError | TypeError | AttributeError)
        what = str(error) if is_told else f"the client did not understand the answer ({error!r})"
        raise Refused(what or type(error).__name__) from error


def check_unchanged(files: Mapping[str, str]) -> None:
    """Raise Refused when one of ``files``, by path with its SHA-256 in hex, is not what it was when the export began."""
    for path, digest in files.items():
        if file_sha256(Path(path)) != digest:
            raise Refused(f"{path} was changed while it was sent: export again")


def _is_raised_here(traceback: TracebackType | None) -> bool:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and Path(traceback.tb_frame.f_code.co_filename).parent == Path(__file__).parent
