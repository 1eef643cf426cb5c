"""The contract of an agent: one task in, one answer or one failure out, and never an exception for what a server does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from collector.outcomes import Answer, Completed, Failure, Omitted
from collector.registry import Registry
from collector.settings import RunSettings, StrictModel


class AgentSettings(StrictModel):
    """Settings under ``agent:``; ``type`` names the agent. Mark connection fields with ``CONNECTION``."""

    type: str


class RowMaker(Protocol):
    """Turns rows of a dataset into those that are sent, where an agent's own rules decide which and how many."""

    def rows_of(self, line: bytes, row: dict[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(task, repeat, row) for each rollout of the dataset's ``line``, which holds ``row``. Raises ValueError."""
        ...

    def source(self, path: Path) -> Path:
        """Where the dataset called ``path`` lies."""
        ...

    def finish(self, path: Path) -> None:
        """Called after the last line of ``path``; raises DatasetError for what only the whole shows."""


S_co = TypeVar("S_co", bound=AgentSettings, covariant=True)


class Agent(ABC, Generic[S_co]):
    """Answers tasks of one run. The collector enters it once, calls ``answer`` many times at once, and closes it."""

    Settings: ClassVar[type[AgentSettings]]
    #: Whether its answers come graded; the verifier of such a run is ``environment`` and is never asked.
    grades: ClassVar[bool] = False

    def __init__(self, settings: S_co, run: RunSettings) -> None:
        self.settings = settings
        self.run = run

    @classmethod
    def row_maker(cls, run: RunSettings) -> RowMaker | None:
        """What makes the rows of ``run``; None where every row is sent as it stands, ``num_repeats`` times."""
        del run
        return None

    @classmethod
    def own_rows(cls, run: RunSettings) -> list[dict[str, Any]] | None:
        """The tasks of ``run`` where the agent is the benchmark, one rollout each; None where a dataset has them."""
        del run
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError with what is wrong when ``row`` cannot be sent. Called for each row before any dispatch."""
        del row

    def target_of(self, row: dict[str, Any]) -> str | None:
        """Which of several servers ``row`` goes to; None when there is only the endpoint of the settings."""
        del row
        return None

    def identity(self, targets: Collection[str]) -> dict[str, Any]:
        """What beside the settings decides an answer (the settings of ``targets``, say); part of the experiment."""
        del targets
        return {}

    def wind_down(self) -> None:
        """Called once when the session is asked to stop; what is being answered may go on for the margin of the stop.

        For agents whose work takes longer than that. A failure of kind ``shutdown`` then leaves its attempt cut off.
        """

    @abstractmethod
    async def answer(self, row: dict[str, Any]) -> Answer | Completed | Failure | Omitted:
        """Answer the materialized row. ``row`` is shared: do not change it. Completed is an answer with its grade.

        Whatever the other side does becomes a Failure with its kind, its delivery and the evidence. An exception that
        escapes is a bug in the agent; the collector records it against this one rollout and goes on.
        """


AGENTS: Registry[Agent[AgentSettings]] = Registry(
    kind="agent",
    group="gym_eval.agents",
    base=Agent,
    builtin={
        "command": "collector.agents.command.agent:CommandAgent",
        "nemo_gym": "collector.agents.nemo_gym.agent:NemoGymAgent",
        "openai_chat": "collector.agents.openai_chat:OpenAIChatAgent",
        "openai_responses": "collector.agents.openai_responses:OpenAIResponsesAgent",
    },
)
