"""The agent of a benchmark that is one command: the command is the only row, one run of it an attempt, its exit the outcome."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

from pydantic import Field

from collector.agents.base import Agent, AgentSettings
from collector.agents.command.process import CommandProcess
from collector.agents.command.result import last_words, read_result
from collector.errors import ConfigError
from collector.formats import rows
from collector.outcomes import Answer, Completed, Delivery, Failure, FailureClass, FailureKind, Stage
from collector.setting_kinds import Seconds
from collector.settings import CONNECTION, REPORTING, RunSettings

#: A day: longer than the walltime of most partitions, and not for ever.
DEFAULT_TIMEOUT_S: Final = 86400.0
#: Seconds between SIGTERM and SIGKILL for a command that took too long.
GRACE_S: Final = 10.0
#: Seconds that a command which ended badly waits for news of a stop: a signal to the whole job reaches it first at times.
_STOP_NOTICE_S: Final = 0.5
_KILLED: Final = 128 + 9
_NO_KEY: Final = "dummy"


class CommandSettings(AgentSettings):
    """Settings under ``agent:`` for ``type: command``; a submission makes them of ``driver.benchmarks.NAME.command``."""

    #: A text is run by bash, a list as it stands.
    command: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]
    timeout_s: Seconds = Field(default=DEFAULT_TIMEOUT_S, json_schema_extra=REPORTING)
    #: The image that it runs in; ``launcher`` is what starts it there.
    container: str | None = None
    launcher: list[str] = Field(default_factory=list[str], json_schema_extra=CONNECTION)
    #: Where it runs, absolute; logs and results lie in ``logs`` there, named by ``job``.
    directory: Path | None = Field(default=None, json_schema_extra=CONNECTION)
    job: str = Field(default="", json_schema_extra=CONNECTION)


class CommandAgent(Agent[CommandSettings]):
    """Runs the command in the benchmark's directory, its output in a log of its own for each attempt."""

    Settings = CommandSettings
    grades: ClassVar[bool] = True

    def __init__(self, settings: CommandSettings, run: RunSettings) -> None:
        super().__init__(settings, run)
        self._asked_to_end = asyncio.Event()
        self._running: set[CommandProcess] = set()

    @classmethod
    def own_rows(cls, run: RunSettings) -> list[dict[str, Any]]:
        """The command."""
        return [{"command": CommandSettings.model_validate(run.agent).command}]

    async def __aenter__(self) -> Self:
        if self.settings.directory is None:
            raise ConfigError("agent: command is run by the jobs of gym eval submit: use driver.benchmarks.NAME.command.")
        return self

    def wind_down(self) -> None:
        """SIGTERM to what runs: the time that is left is for saving its state."""
        self._asked_to_end.set()
        for process in self._running:
            process.terminate()

    async def answer(self, row: dict[str, Any]) -> Completed | Failure:
        """One run of the command. What it is in the middle of when the job is asked to stop is cut off, not failed."""
        place = self._place_of(row)
        # An answer of another life of the job must not pass for this one's.
        place.result.unlink(missing_ok=True)
        environ = {**os.environ, **self._variables(place)}
        ended = await self._run(place, environ)
        outcome = ended if isinstance(ended, Failure) else _outcome_of(ended, place)
        if isinstance(outcome, Completed) and outcome.verdict.reward is not None:
            return outcome
        if await self._is_asked_to_end():
            return _cut_off(outcome)
        if isinstance(outcome, Failure) and outcome.delivery is Delivery.DELIVERED:
            return _with_evidence(outcome, place, said=last_words(place.log, self._secrets(environ)))
        return outcome

    async def _run(self, place: _Place, environ: dict[str, str]) -> int | Failure:
        """The exit code, or a failure when it did not start, or did not end in its time."""
        limit_s = self.settings.timeout_s
        process = CommandProcess(self._command(), directory=place.directory, environ=environ, log=place.log)
        try:
            async with process:
                self._running.add(process)
                if self._asked_to_end.is_set():
                    process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit_s):
                        return await process.wait()
                process.terminate()
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_S):
                        await process.wait()
        except OSError as error:
            return _not_started(error)
        finally:
            self._running.discard(process)
        return _failure(FailureKind.AGENT_TIMEOUT, f"the command was not done after {limit_s:g} s (timeout_s)")

    def _command(self) -> list[str]:
        command = self.settings.command
        return [*self.settings.launcher, *(["bash", "-c", command] if isinstance(command, str) else command)]

    def _place_of(self, row: dict[str, Any]) -> _Place:
        if self.settings.directory is None:
            raise AssertionError("checked when the agent was entered")
        stem = f"command-{self.settings.job}-a{row.get(rows.ATTEMPT_INDEX, 0)}"
        logs = self.settings.directory / "logs"
        return _Place(self.settings.directory, logs / f"{stem}.log", logs / f"{stem}.result.json")

    def _variables(self, place: _Place) -> dict[str, str]:
        found = {"NEMO_GYM_BENCH_DIR": str(place.directory), "GYM_EVAL_RESULT": str(place.result)}
        if self.run.policy_base_url is not None:
            key = self.run.policy_api_key
            found["NEMO_GYM_POLICY_BASE_URL"] = self.run.policy_base_url
            found["NEMO_GYM_POLICY_MODEL_NAME"] = self.run.policy_model_name or ""
            # Clients of the OpenAI kind want some key; NeMo Gym gives this one for servers that ask for none.
            found["NEMO_GYM_POLICY_API_KEY"] = key.get_secret_value() if key is not None else _NO_KEY
        return found

    def _secrets(self, environ: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in environ.items() if value != _NO_KEY}

    async def _is_asked_to_end(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_NOTICE_S):
                await self._asked_to_end.wait()
        return self._asked_to_end.is_set()


class _Place(NamedTuple):
    """Where one attempt runs, and what it writes."""

    directory: Path
    log: Path
    result: Path


def _outcome_of(code: int, place: _Place) -> Completed | Failure:
    if code:
        signal = f" (signal {code - 128})" if 128 < code < 160 else ""
        kind = FailureKind.KILL_SHAPED if code == _KILLED else FailureKind.AGENT_RUN_ERROR
        return _failure(kind, f"the command ended with exit code {code}{signal}", exit_code=code)
    try:
        verdict = read_result(place.result)
    except ValueError as error:
        reason = f"the command ended well and its result cannot be used: {error}"
        return _failure(FailureKind.VERIFIER_ERROR, reason, stage=Stage.VERIFICATION, exit_code=0)
    return Completed(answer=Answer(response={}, text=""), verdict=verdict)


def _failure(kind: FailureKind, reason: str, *, stage: Stage = Stage.AGENT, exit_code: int | None = None) -> Failure:
    """Terminal: whatever a command may take hours for is not begun again by itself."""
    timed_out = kind is FailureKind.AGENT_TIMEOUT
    return Failure(
        failure_class=FailureClass.TIMEOUT_EXCEEDED if timed_out else FailureClass.AGENT_RUN_ERROR,
        kind=kind,
        reason=reason,
        terminal=True,
        delivery=Delivery.DELIVERED,
        stage=stage,
        evidence={} if exit_code is None else {"exit_code": exit_code},
    )


def _not_started(error: OSError) -> Failure:
    return Failure(
        failure_class=FailureClass.AGENT_REQUEST_FAILED,
        kind=FailureKind.TRANSPORT_LOCAL_RESOURCE,
        reason=f"the command cannot be started: {error.strerror}",
        exception_type=type(error).__name__,
        delivery=Delivery.NOT_SENT,
        stage=Stage.AGENT,
    )


def _cut_off(outcome: Completed | Failure) -> Failure:
    how = outcome.reason if isinstance(outcome, Failure) else "the command ended without a result"
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.SHUTDOWN,
        reason=f"the job was asked to stop: {how}",
        delivery=Delivery.DELIVERED,
        stage=Stage.AGENT,
    )


def _with_evidence(failure: Failure, place: _Place, *, said: str) -> Failure:
    evidence = {**failure.evidence, "log": str(place.log)}
    return replace(failure, reason=f"{failure.reason}; {said}", evidence=evidence)
