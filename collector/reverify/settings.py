"""What a user can say of a regrading: the model behind ``gym eval reverify`` and its configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from collector.agents.nemo_gym.settings import HeadServer
from collector.reverify.regrade import SAVED
from collector.reverify.selection import Mode
from collector.setting_kinds import Count
from collector.settings import PlugIn, RetrySettings, RunSettings, StrictModel, Timeouts


class ReverifySettings(StrictModel):
    """One regrading. Names are those of NeMo Gym where it has the key."""

    rollouts_jsonl_fpath: Path = Field(description="a rollouts file, or the directory of a run, a benchmark or a shard")
    materialized_inputs_jsonl_fpath: Path | None = Field(
        default=None, description="inventory of files without a manifest; default: the one beside them, else their rows"
    )
    output_jsonl_fpath: Path | None = Field(default=None, description="the new run; with append the run itself")
    verifier: PlugIn | None = Field(
        default=None, description="who grades; null, or keys without a type: as the run was collected, with these changes"
    )

    head_server: HeadServer | None = Field(
        default=None, description="of a running NeMo Gym: short for a verifier of type gym_server with it"
    )

    judge_failed_only: bool = Field(default=False, description="only answers whose judge failed; results are taken over")
    append: bool = Field(default=False, description="record into the run itself; with judge_failed_only")
    resume: bool = Field(default=False, description="go on with an output that is not finished")
    overwrite: bool = Field(default=False, description="replace an output that is there")
    force: bool = Field(default=False, description="grade though a Gym server does not say that it keeps no state")
    limit: Count | None = Field(default=None, description="only so many answers, the first ones")

    num_samples_in_parallel: Count = Field(default=16, description="gradings in flight at once")
    timeouts: Timeouts = Field(default_factory=Timeouts)
    retry: RetrySettings | None = Field(default=None, description="over the run's own")
    retry_invalid_judge_responses: bool | None = Field(default=None, description="short for the key of retry")
    retry_terminal_timeouts: bool | None = Field(default=None, description="short for the key of retry")
    invalid_judge_retryable: bool = Field(
        default=True, description="with retry.retry_invalid_judge_responses: false makes such verdicts permanent failures"
    )
    durability: Literal["fsync", "flush"] = "fsync"
    disable_aggregation: bool = Field(default=False, description="leave out the metrics")
    disable_health_check: bool = Field(default=False, description="leave out the health check")
    health_check_ignored_checks: tuple[str, ...] = ()
    allow_partial: bool = Field(default=False, description="accept that shards of the run are missing")

    @property
    def mode(self) -> Mode:
        """What is graded again."""
        return Mode.JUDGE_FAILED_ONLY if self.judge_failed_only else Mode.ALL

    def retry_over(self, known: dict[str, Any]) -> RetrySettings:
        """The budgets: ``known`` ones, with what was given here over them."""
        given = {} if self.retry is None else {name: getattr(self.retry, name) for name in self.retry.model_fields_set}
        short = ("retry_invalid_judge_responses", "retry_terminal_timeouts")
        given |= {name: getattr(self, name) for name in short if getattr(self, name) is not None}
        return RetrySettings.model_validate({**known, **given})

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.append and not self.judge_failed_only:
            raise ValueError("append: records a judge's second try into the run itself: it needs judge_failed_only")
        chosen = [name for name in ("append", "resume", "overwrite") if getattr(self, name)]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)}: give one of them")
        if not self.append and self.output_jsonl_fpath is None:
            raise ValueError("output_jsonl_fpath: name the new run's rollouts file")
        return self


def run_settings(settings: ReverifySettings, output: Path, verifier: PlugIn, retry: RetrySettings) -> RunSettings:
    """The settings of the session that grades into ``output``."""
    return RunSettings(
        input_jsonl_fpath=settings.rollouts_jsonl_fpath,
        output_jsonl_fpath=output,
        agent={"type": SAVED},
        verifier=verifier,
        num_samples_in_parallel=settings.num_samples_in_parallel,
        timeouts=settings.timeouts,
        retry=retry,
        durability=settings.durability,
        disable_health_check=settings.disable_health_check,
        health_check_ignored_checks=settings.health_check_ignored_checks,
    )
