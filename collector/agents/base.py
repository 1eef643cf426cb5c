"""The contract of an agent: one task in, one answer or one failure out, and never an exception for what a server does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Self, TypeVar

from collector.outcomes import Answer, Failure
from collector.registry import Registry
from collector.settings import RunSettings, StrictModel


class AgentSettings(StrictModel):
    """Settings under ``agent:``; ``type`` names the agent. Mark connection fields with ``CONNECTION``."""

    type: str


S_co = TypeVar("S_co", bound=AgentSettings, covariant=True)


class Agent(ABC, Generic[S_co]):
    """Answers tasks of one run. The collector enters it once, calls ``answer`` many times at once, and closes it."""

    Settings: ClassVar[type[AgentSettings]]

    def __init__(self, settings: S_co, run: RunSettings) -> None:
        self.settings = settings
        self.run = run

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError with what is wrong when ``row`` cannot be sent. Called for each row before any dispatch."""
        del row

    @abstractmethod
    async def answer(self, row: dict[str, Any]) -> Answer | Failure:
        """Answer the materialized row. ``row`` is shared: do not change it.

        Whatever the other side does becomes a Failure with its kind, its delivery and the evidence. An exception that
        escapes is a bug in the agent; the collector records it against this one rollout and goes on.
        """


AGENTS: Registry[Agent[AgentSettings]] = Registry(
    kind="agent",
    group="gym_eval.agents",
    base=Agent,
    builtin={
        "openai_chat": "collector.agents.openai_chat:OpenAIChatAgent",
        "openai_responses": "collector.agents.openai_responses:OpenAIResponsesAgent",
    },
)
