"""One generation of a benchmark's published files: projection, coverage, metrics, and the receipt that makes them one.

Order: projection, coverage, metrics, receipt; the metrics are computed before the first of them is replaced. A crash before
the receipt leaves files that no receipt agrees with, and whoever merges next redoes all of them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import RefusedError, kind_of
from collector.state.coverage import Coverage, total
from merge.aggregate import AgentRows, publish_aggregate, write_aggregate
from merge.coverage import encode_coverage, total_coverage
from merge.inputs.identity import Inputs, agent_name
from merge.inputs.select import OverlapError, merge_keys
from merge.inputs.shards import ShardView
from merge.legacy.inputs import LegacyInputs
from merge.metrics.answers import answer_field_of
from merge.metrics.counting import OFF, Counting, coverage_fields, zeros_of
from merge.metrics.table import RowTable
from merge.publication.projection_check import ProjectionState, check_projection, input_record, output_record
from merge.publication.publish import Part, numbers_of, publish_parts
from merge.publication.receipt import Receipt
from merge.rows.blocks import read_rows
from merge.rows.numbers import NumberReader


@dataclass(frozen=True, slots=True)
class AgentShards:
    """What one agent answered: its shards, their rising keys, and how many rollouts were expected of it if that is known."""

    agent: str
    shards: tuple[ShardView, ...]
    inventory: array[int]
    expected: int | None
    source_digest: str


@dataclass(frozen=True, slots=True)
class Reporting:
    """How results are reported; none of it changes what they are."""

    counting: Counting = OFF
    #: Further metrics of other people's packages, by name.
    plugins: tuple[str, ...] = ()
    #: The field of rows that names the subset of their task; the pass@k family is then told of each subset, too.
    subset_field: str | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What a merge would publish: the shards as they were read, what is missing, and the coverage of the whole."""

    shards: tuple[ShardView, ...]
    coverage: Coverage
    missing_shards: tuple[int, ...] = ()
    #: Coverages that add up to the whole, by the name of the shard or the agent.
    parts: tuple[tuple[str, Coverage], ...] = ()
    #: Set for files without a manifest only; of a run all shards have one agent.
    legacy: LegacyInputs | None = None
    reporting: Reporting = field(default_factory=Reporting)

    @property
    def is_partial(self) -> bool:
        return self.coverage.partial

    @property
    def is_expected_known(self) -> bool:
        """Whether somebody says how many rollouts there should be."""
        return self.legacy is None or not self.legacy.without_inventory

    def agents(self) -> tuple[AgentShards, ...]:
        """The shards by agent. Raises RefusedError when a rollout belongs to two of them."""
        if self.legacy is None:
            manifest = self.shards[0].manifest
            inventory = whole_inventory(self.shards)
            agent = agent_name(manifest)
            return (AgentShards(agent, self.shards, inventory, self.coverage.expected, manifest.source_digest),)
        return tuple(
            AgentShards(
                agent.agent,
                agent.shards,
                agent.inventory,
                agent.coverage.expected if self.is_expected_known else None,
                agent.source_digest,
            )
            for agent in self.legacy.agents
        )

    def encoded_coverage(self) -> bytes:
        """The bytes of the coverage file."""
        counting = self.reporting.counting
        counted = None
        if counting.is_on:
            zeros = zeros_of(self.shards, counting)
            counted = coverage_fields(counting, [zeros], self.coverage.reward_sum, self.coverage.measured)
        without = () if self.legacy is None else tuple(path.name for path in self.legacy.without_inventory)
        return encode_coverage(self.coverage, self.missing_shards, parts=self.parts, counted=counted, without_inventory=without)


def plan_generation(inputs: Inputs, shards: Sequence[ShardView], reporting: Reporting | None = None) -> Generation:
    """The generation over ``shards``, the views of ``inputs``. Partial when a shard is missing or a rollout unfinished."""
    is_partial = bool(inputs.missing) or any(not shard.coverage.is_final for shard in shards)
    coverage = total_coverage(shards, inputs, is_partial=is_partial)
    parts = tuple((shard.artifacts.rollouts.parent.name, shard.coverage) for shard in shards)
    return Generation(tuple(shards), coverage, inputs.missing, parts, reporting=reporting or Reporting())


def plan_legacy(found: LegacyInputs, reporting: Reporting | None = None) -> Generation:
    """The generation over files without a manifest. Partial when a rollout is unfinished."""
    summed = total(agent.coverage for agent in found.agents)
    shards = tuple(shard for agent in found.agents for shard in agent.shards)
    names = {agent.agent for agent in found.agents}
    update = {"partial": not summed.is_final, "benchmark": " + ".join(sorted(names))}
    parts = tuple((agent.agent, agent.coverage) for agent in found.agents)
    coverage = summed.model_copy(update=update)
    return Generation(shards, coverage, parts=parts, legacy=found, reporting=reporting or Reporting())


def whole_inventory(shards: Sequence[ShardView]) -> array[int]:
    """The rising keys of all rollouts. Raises RefusedError when a rollout belongs to two shards."""
    try:
        return merge_keys([shard.keys for shard in shards])
    except OverlapError as error:
        first, second = (shards[shard].artifacts.rollouts for shard in error.shards)
        raise RefusedError(
            f"{error.rollout} is in both inputs: {first} and {second}.", "Merge only shards of one plan."
        ) from error


def published_receipt(merged: RunArtifacts, generation: Generation) -> Receipt | None:
    """The receipt of what stands at ``merged`` when it is whole and exactly ``generation``; None otherwise."""
    check = check_projection(merged, generation.shards)
    if check.state is not ProjectionState.VERIFIED or check.receipt is None:
        return None
    is_same = check.receipt.coverage_sha256 == hashlib.sha256(generation.encoded_coverage()).hexdigest()
    return check.receipt if is_same else None


def publish_generation(
    merged: RunArtifacts, generation: Generation, before_receipt: Callable[[], None] = lambda: None
) -> Receipt:
    """Publish all files of ``generation`` at ``merged``. The caller holds the merge lock and has checked the target.

    ``before_receipt`` is called when all but the receipt stands: what the generation takes the place of goes then.
    Raises RefusedError for overlapping inputs or inputs that change meanwhile, CorruptArtifactError for a damaged row,
    StorageError when the disk does not take it; no receipt says then that a generation stands.
    """
    agents = generation.agents()
    try:
        for path in (merged.rollouts, merged.coverage, merged.aggregate, merged.receipt):
            durable.sweep(path)
        return _publish(merged, generation, agents, before_receipt)
    except OSError as error:
        where = merged.rollouts if error.filename is None else error.filename
        raise kind_of(error)(
            f"the projection cannot be written: {error.strerror}.", "Inputs are unharmed: mend it, then merge again.", where
        ) from error


def _publish(
    merged: RunArtifacts, generation: Generation, agents: Sequence[AgentShards], before_receipt: Callable[[], None]
) -> Receipt:
    shards = generation.shards
    manifest = shards[0].manifest
    parts = [Part(agent.shards, answer_field_of(agent.shards), generation.reporting.subset_field) for agent in agents]
    coverage = generation.encoded_coverage()
    aggregate_sha256 = ""

    # Before anything is replaced: a metric of another package may fail, and a disk be full.
    def write_metrics() -> None:
        nonlocal aggregate_sha256
        entries = [agent_rows(generation, agent, part.table) for agent, part in zip(agents, parts, strict=True)]
        try:
            aggregate_sha256 = write_aggregate(metrics, entries)
        except OSError as error:
            error.filename = error.filename or str(merged.aggregate)
            raise

    with durable.staged(merged.aggregate) as metrics:
        written = publish_parts(merged.rollouts, parts, write_metrics)
        durable.publish(merged.coverage, coverage)
    receipt = Receipt(
        partial=generation.is_partial,
        run_id=manifest.run_id,
        benchmark=generation.coverage.benchmark,
        agent=" + ".join(agent.agent for agent in agents),
        output=output_record(written, merged),
        inputs=tuple(input_record(shard, merged) for shard in shards),
        missing_shards=generation.missing_shards,
        coverage_sha256=hashlib.sha256(coverage).hexdigest(),
        aggregate_sha256=aggregate_sha256,
    )
    before_receipt()
    durable.publish(merged.receipt, receipt.encode())
    return receipt


def publish_reports(merged: RunArtifacts, generation: Generation) -> None:
    """Publish coverage and metrics at ``merged`` and neither rows nor a receipt. The caller holds the merge lock."""
    with durable.staged(merged.aggregate) as metrics:
        write_aggregate(metrics, _read_entries(generation))
        durable.publish(merged.coverage, generation.encoded_coverage())


def publish_metrics_only(merged: RunArtifacts, generation: Generation) -> None:
    """Publish the metrics of ``generation`` at ``merged``. Raises CorruptArtifactError for a damaged row."""
    publish_aggregate(merged.aggregate, _read_entries(generation))


def _read_entries(generation: Generation) -> list[AgentRows]:
    entries: list[AgentRows] = []
    for agent in generation.agents():
        table, reader = RowTable(), NumberReader(answer_field_of(agent.shards), generation.reporting.subset_field)
        for block in read_rows(agent.shards):
            table.add(numbers_of(block, reader, agent.shards))
        entries.append(agent_rows(generation, agent, table))
    return entries


def agent_rows(generation: Generation, agent: AgentShards, table: RowTable) -> AgentRows:
    """What the metrics file says of one agent."""
    return AgentRows(
        agent=agent.agent,
        table=table,
        inventory=agent.inventory,
        expected=agent.expected,
        source_digest=agent.source_digest,
        is_partial=generation.is_partial,
        zeros=zeros_of(agent.shards, generation.reporting.counting),
        shards=agent.shards,
        plugins=generation.reporting.plugins,
    )
