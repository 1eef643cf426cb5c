"""The submit YAML as a whole."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from collector.setting_kinds import Count, Seconds
from collector.settings import NamedPath, StrictModel
from orchestrate.config.compute import Compute
from orchestrate.config.services import Command, ContainerImage, Mount, Service
from orchestrate.config.values import Duration, EnvMap, Line

#: Exporter name to its settings; null switches one off.
ExportMap = dict[str, dict[str, Any] | None]
#: Keys of ``run`` that the submission fills in.
FILLED_IN = frozenset({"output_jsonl_fpath"})
#: Keys of ``run`` that say which model answers; they exclude ``driver.policy_model``.
POLICY_KEYS = ("policy_base_url", "policy_model_name", "policy_api_key")


class Requeue(StrictModel):
    """How often and how long a job may run again after it ran out of time, was preempted or lost its node.

    And how many cut-off attempts a rollout may have.
    """

    #: A run of the job that recorded nothing counts double.
    max_requeues: Annotated[int, Field(ge=0)] = 20
    #: No run begins after this much time was spent collecting in the runs before it. null: no bound.
    max_walltime: Duration | None = None
    max_interruptions: Annotated[int, Field(ge=0)] = 20


class Prepare(StrictModel):
    """What makes a benchmark's dataset where there is none."""

    command: Command


class Benchmark(StrictModel):
    """One benchmark: how to run it, in how many parts, and where its results go."""

    shards: Count = 1
    run: dict[str, Any] = Field(default_factory=dict[str, Any])
    #: Instead of ``run``: a program that is the whole benchmark. A text is run by bash, a list as it stands.
    command: Command | None = None
    #: Seconds that the command may take; null: a day.
    timeout_s: Seconds | None = None
    #: Run once by the submit command when there is no file at ``run.input_jsonl_fpath``.
    prepare: Prepare | None = None
    export: ExportMap = Field(default_factory=dict)
    requeue: Requeue = Field(default_factory=Requeue)

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if self.command is None and not self.run:
            raise ValueError("needs either run or command")
        if self.command is not None and self.run:
            raise ValueError("has run and command: a command is the whole benchmark, remove one of the two")
        if self.command is not None and self.prepare is not None:
            raise ValueError("prepare makes the dataset of run: put it into the command")
        if self.command is not None and self.shards > 1:
            raise ValueError("a command is one rollout: leave shards at 1")
        if self.command is None and self.timeout_s is not None:
            raise ValueError("timeout_s is for a command: a run has run.timeouts")
        return self


class Driver(StrictModel):
    """What is measured, and with which model."""

    policy_model: str | None = None
    benchmarks: dict[str, Benchmark]
    env: EnvMap = Field(default_factory=dict)
    #: The image that commands of benchmarks run in, and what of the node is seen there.
    container: ContainerImage | None = None
    mounts: list[Mount] = Field(default_factory=list)


class Job(StrictModel):
    """Where the run directory is made, and what it is called."""

    output_path: NamedPath
    name: Line | None = None
    #: Shards, of whatever benchmarks, that one job works off with its services started once.
    pack: Count = 1
    #: How many of a job's shards are worked on at a time; each has its own requests in flight.
    pack_at_once: Count = 1


class SubmitConfig(StrictModel):
    """A submit YAML after interpolation, without its scratch keys."""

    services: dict[str, Service] = Field(default_factory=dict)
    compute: dict[str, Compute]
    driver: Driver
    job: Job
    export: ExportMap = Field(default_factory=dict)

    @property
    def the_compute(self) -> Compute:
        """The only entry of ``compute``."""
        return next(iter(self.compute.values()))

    def exports_of(self, benchmark: str) -> dict[str, dict[str, Any]]:
        """The exporters of one benchmark: the job's, overridden by its own, without those switched off."""
        merged: ExportMap = dict(self.export)
        for name, settings in self.driver.benchmarks[benchmark].export.items():
            base = merged.get(name) or {}
            merged[name] = None if settings is None else {**base, **settings}
        return {name: settings for name, settings in merged.items() if settings is not None}
