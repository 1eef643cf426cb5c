"""What the inputs of a merge come to: found, read and held against each other, without anything being written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from merge.inputs.identity import Inputs, bind_inputs
from merge.inputs.sources import find_runs, read_source


def resolve_sources(inputs: Sequence[str | Path], *, allow_partial: bool = False) -> Inputs:
    """The shards that ``inputs`` name, each once. Raises NotFoundError, RefusedError or IdentityError."""
    return bind_inputs([read_source(run) for run in find_runs(inputs)], allow_partial=allow_partial)
