"""What a submission is going to do, decided from values alone: which rollouts form which shard, and under which name.

Two submissions with one identity are one run: the second finds what the first left. Connection, compute, retry and export
settings are not part of it; they apply to every job that starts from now on.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from collector.errors import ConfigError
from collector.formats.manifest import digest_of
from collector.settings import StrictModel
from collector.text.counted import counted
from orchestrate.config.submit import SubmitConfig
from orchestrate.names import slug

if TYPE_CHECKING:
    # Code that makes a plan has loaded them; code that reads one does without.
    from collector.preparation.materialize import Materialized
    from orchestrate.config.load import Loaded

FORMAT: Final = 1


class BenchmarkPlan(StrictModel):
    """One benchmark of a run: its parts and what binds them together."""

    name: str
    slug: str
    run_id: str
    #: Rollouts of each shard when it was planned, by index; those of resubmissions follow the first ones.
    shard_sizes: list[int]
    #: How many shards each resubmission added.
    generations: list[int] = Field(default_factory=list)
    source_digest: str
    inventory_digest: str
    export: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def shards(self) -> int:
        """How many parts there are, those of resubmissions included."""
        return len(self.shard_sizes)

    @property
    def first_shards(self) -> int:
        """How many parts there were at first; together they hold every rollout."""
        return len(self.shard_sizes) - sum(self.generations)

    @property
    def expected(self) -> int:
        """Rollouts of the whole benchmark."""
        return sum(self.shard_sizes[: self.first_shards])

    def shard_directory(self, index: int) -> str:
        """Where shard ``index`` lies below ``shards``: ``3-of-8``, or ``g2/0-of-4`` in the second resubmission."""
        if index < self.first_shards:
            return f"{index}-of-{self.first_shards}"
        position = index - self.first_shards
        for generation, count in enumerate(self.generations, 1):
            if position < count:
                return f"g{generation}/{position}-of-{count}"
            position -= count
        raise IndexError(index)


class SubmitPlan(StrictModel):
    """The file ``plan.json``: everything a job needs to know, except the values of secrets."""

    schema_version: Literal[1] = FORMAT
    name: str
    version: str
    created_at: str
    config_file: str
    #: Digest of that file's bytes when it was last submitted; empty where it is no file, and in older plans.
    config_file_digest: str = ""
    #: Where the submit command ran: relative paths of datasets, prompts, verifiers and services start here.
    cwd: str
    identity_digest: str
    #: What ``identity_digest`` is of, so that a difference can be shown field by field.
    identity: dict[str, Any]
    config: SubmitConfig
    benchmarks: list[BenchmarkPlan]

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with a final newline."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    def benchmark(self, name: str) -> BenchmarkPlan:
        """The plan of the benchmark called ``name``; KeyError when there is none."""
        return {plan.name: plan for plan in self.benchmarks}[name]

    @property
    def names(self) -> list[str]:
        """The benchmarks in the order of the configuration."""
        return [plan.name for plan in self.benchmarks]


@dataclass(frozen=True, slots=True)
class Source:
    """What was read of one benchmark: its inventory and the experiment that its settings describe."""

    inventory: Materialized
    experiment: dict[str, Any]
    #: The servers that its rows go to, where its agent has several.
    targets: frozenset[str] = frozenset()


def plan_submission(
    loaded: Loaded, sources: Mapping[str, Source], *, config_file: Path, cwd: Path, version: str, now: str, suffix: str = ""
) -> SubmitPlan:
    """The plan of one submission. Raises ConfigError when a benchmark has more shards than rollouts.

    ``suffix`` makes a deliberate second run of the same experiment.
    """
    config = loaded.config
    identity = _identity(config, sources)
    digest = digest_of(identity)
    benchmarks = [_plan_benchmark(config, name, source) for name, source in sources.items()]
    base = config.job.name or f"{slug(config_file.stem)}-{digest[:8]}"
    return SubmitPlan(
        name=f"{base}-{suffix}" if suffix else base,
        version=version,
        created_at=now,
        config_file=str(config_file),
        config_file_digest=file_digest(config_file),
        cwd=str(cwd),
        identity_digest=digest,
        identity=identity,
        config=config,
        benchmarks=benchmarks,
    )


def file_digest(file: Path) -> str:
    """What tells an edited file from the one that was submitted; empty when it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def deal(count: int, shards: int, *, seed: str) -> list[list[int]]:
    """Rollouts 0 to ``count`` - 1 dealt to ``shards`` hands of equal size, give or take one, each in ascending order.

    Shuffled by ``seed``, so that hard tasks which stand side by side in a dataset do not meet in one shard.
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)  # noqa: S311 - not for secrets, for the same deal every time
    return [sorted(order[index::shards]) for index in range(shards)]


def _plan_benchmark(config: SubmitConfig, name: str, source: Source) -> BenchmarkPlan:
    shards, count = config.driver.benchmarks[name].shards, len(source.inventory)
    if shards > count:
        raise ConfigError(
            f"driver.benchmarks.{name}.shards: {counted(shards, 'shard')} for {counted(count, 'rollout')}.",
            "Ask for at most one shard a rollout.",
        )
    digest = source.inventory.digest
    return BenchmarkPlan(
        name=name,
        slug=slug(name),
        run_id=uuid.uuid4().hex,
        shard_sizes=[len(hand) for hand in deal(count, shards, seed=digest)],
        source_digest=source.inventory.source_digest,
        inventory_digest=digest,
        export=config.exports_of(name),
    )


def _identity(config: SubmitConfig, sources: Mapping[str, Source]) -> dict[str, Any]:
    return {
        "policy_model": config.driver.policy_model,
        "services": {name: _service_identity(service.model_dump(mode="json")) for name, service in config.services.items()},
        "benchmarks": {
            name: {
                "shards": config.driver.benchmarks[name].shards,
                "experiment": source.experiment,
                "dataset": source.inventory.source_digest,
                "inventory": source.inventory.digest,
            }
            for name, source in sources.items()
        },
    }


def _service_identity(service: Mapping[str, Any]) -> dict[str, Any]:
    """What can change an answer: the program and what it serves, not where it listens or how long it may take."""
    started = ("type", "command", "served_model_name", "env")
    if service["type"] == "vllm":
        kept = (*started[:1], *started[2:], "model", "trust_remote_code", "extra_args")
    else:
        kept = started if service["type"] == "command" else ("type", "served_model_name")
    # Older plans know no containers.
    image = {"container": service["container"]} if service.get("container") else {}
    return {**{key: service[key] for key in kept}, **image}


def batches(indexes: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    """``indexes`` in arrays of at most ``limit``; none is empty."""
    return [tuple(indexes[start : start + limit]) for start in range(0, len(indexes), limit)]
