"""One generation of a benchmark's published files: projection, coverage, metrics, and the receipt that makes them one.

Order: projection, coverage, metrics, receipt. A crash before the receipt leaves files that no receipt agrees with, and whoever
merges next redoes all of them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from collector import durable
from collector.artifacts import RunArtifacts
from collector.coverage import Coverage
from collector.errors import RefusedError, UnavailableError
from collector.manifest import Manifest
from merge.aggregate import publish_aggregate
from merge.coverage import encode_coverage, total_coverage
from merge.identity import Inputs
from merge.publish import publish_rows, sweep_leftovers
from merge.receipt import ProjectionState, Receipt, check_projection, input_record, output_record
from merge.select import OverlapError, order_runs
from merge.shards import ShardView
from merge.table import RowTable


@dataclass(frozen=True, slots=True)
class Generation:
    """What a merge would publish: the shards as they were read, what is missing, and the coverage of the whole."""

    inputs: Inputs
    shards: tuple[ShardView, ...]
    coverage: Coverage

    @property
    def is_partial(self) -> bool:
        return self.coverage.partial

    def encoded_coverage(self) -> bytes:
        """The bytes of the coverage file."""
        return encode_coverage(self.coverage, self.inputs.missing)


def plan_generation(inputs: Inputs, shards: Sequence[ShardView]) -> Generation:
    """The generation over ``shards``, the views of ``inputs``. Partial when a shard is missing or a rollout unfinished."""
    is_partial = bool(inputs.missing) or any(not shard.coverage.is_final for shard in shards)
    return Generation(inputs, tuple(shards), total_coverage(shards, inputs, is_partial=is_partial))


def whole_inventory(shards: Sequence[ShardView]) -> array[int]:
    """The rising keys of all rollouts. Raises RefusedError when a rollout belongs to two shards."""
    keys: array[int] = array("q")
    try:
        for run in order_runs([shard.keys for shard in shards]):
            keys.extend(shards[run.shard].keys[run.begin : run.end])
    except OverlapError as error:
        first, second = (shards[shard].artifacts.rollouts for shard in error.shards)
        raise RefusedError(
            f"{error.rollout} is in both inputs: {first} and {second}.", "Merge only shards of one plan."
        ) from error
    return keys


def published_receipt(merged: RunArtifacts, generation: Generation) -> Receipt | None:
    """The receipt of what stands at ``merged`` when it is whole and exactly ``generation``; None otherwise."""
    check = check_projection(merged, generation.shards)
    if check.state is not ProjectionState.VERIFIED or check.receipt is None:
        return None
    is_same = check.receipt.coverage_sha256 == hashlib.sha256(generation.encoded_coverage()).hexdigest()
    return check.receipt if is_same else None


def publish_generation(merged: RunArtifacts, generation: Generation) -> Receipt:
    """Publish all files of ``generation`` at ``merged``. The caller holds the merge lock and has checked the target.

    Raises RefusedError for overlapping inputs or inputs that change meanwhile, CorruptArtifactError for a damaged row,
    UnavailableError when the disk does not take it; no receipt says then that a generation stands.
    """
    inventory = whole_inventory(generation.shards)
    try:
        sweep_leftovers((merged.rollouts, merged.coverage, merged.aggregate, merged.receipt))
        return _publish(merged, generation, inventory)
    except OSError as error:
        where = merged.rollouts if error.filename is None else error.filename
        raise UnavailableError(
            f"the projection cannot be written: {error.strerror}.", "Inputs are unharmed: mend it, then merge again.", where
        ) from error


def _publish(merged: RunArtifacts, generation: Generation, inventory: array[int]) -> Receipt:
    shards = generation.shards
    manifest = shards[0].manifest
    agent = agent_name(manifest)
    table = RowTable()
    written = publish_rows(merged.rollouts, shards, table)
    coverage = generation.encoded_coverage()
    durable.publish(merged.coverage, coverage)
    expected = generation.coverage.expected
    aggregate_sha256 = publish_aggregate(merged.aggregate, table, inventory, agent=agent, expected=expected)
    receipt = Receipt(
        partial=generation.is_partial,
        run_id=manifest.run_id,
        benchmark=manifest.benchmark,
        agent=agent,
        output=output_record(written, merged),
        inputs=tuple(input_record(shard, merged) for shard in shards),
        missing_shards=generation.inputs.missing,
        coverage_sha256=hashlib.sha256(coverage).hexdigest(),
        aggregate_sha256=aggregate_sha256,
    )
    durable.publish(merged.receipt, receipt.encode())
    return receipt


def agent_name(manifest: Manifest) -> str:
    """How published files call who answered: the agent's type."""
    agent = manifest.config.get("agent")
    name = agent.get("type") if isinstance(agent, dict) else None
    return name if isinstance(name, str) else manifest.benchmark
