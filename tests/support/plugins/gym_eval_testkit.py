"""An agent and a verifier that need no network, installed the way other people's packages are: by entry points.

The agent notes each call in a log before it answers, so that "asked twice" is a number.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

from collector.agents.base import Agent, AgentSettings
from collector.outcomes import Answer, Delivery, Failure, FailureClass, FailureKind, Verdict
from collector.verifiers.base import Verifier, VerifierSettings


class ScriptedSettings(AgentSettings):
    """``log``: where calls are noted. ``delay_s``: how long an answer takes. ``raises_at_stop``: a bug, when told of a stop."""

    log: Path | None = None
    delay_s: float = 0.0
    raises_at_stop: bool = False


class ScriptedAgent(Agent[ScriptedSettings]):
    """Answers with the row's ``say``; the row's ``fail`` says how many first calls of this process fail.

    How they fail: ``terminal``, ``status`` (500 unless given), ``unsent``, ``reason``. ``delay_s`` of a row is its own.
    """

    Settings: ClassVar[type[AgentSettings]] = ScriptedSettings

    def __init__(self, settings: ScriptedSettings, run: Any) -> None:
        super().__init__(settings, run)
        self._calls: dict[str, int] = {}

    def wind_down(self) -> None:
        if self.settings.raises_at_stop:
            raise RuntimeError("not today")

    async def answer(self, row: dict[str, Any]) -> Answer | Failure:
        rollout = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        self._note(rollout)
        await asyncio.sleep(row.get("delay_s", self.settings.delay_s))
        nth = self._calls.get(rollout, 0)
        self._calls[rollout] = nth + 1
        if nth < row.get("drop", 0):
            return Failure(
                failure_class=FailureClass.AGENT_REQUEST_FAILED,
                kind=FailureKind.TRANSPORT_PEER_DROP,
                reason="the peer went away",
            )
        if nth < row.get("fail", 0):
            return Failure(
                failure_class=FailureClass.AGENT_RUN_ERROR,
                kind=FailureKind.AGENT_RUN_ERROR,
                reason=row.get("reason", "scripted"),
                terminal=row.get("terminal", False),
                delivery=Delivery.NOT_SENT if row.get("unsent") else Delivery.DELIVERED,
                http_status=row.get("status", 500),
            )
        text = row.get("say", "")
        output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
        return Answer(response={"object": "response", "output": output}, text=text)

    def _note(self, rollout: str) -> None:
        if self.settings.log is None:
            return
        descriptor = os.open(self.settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.pwrite(descriptor, f"{rollout}\n".encode(), 0)  # O_APPEND: the offset is ignored; os.write stays free for faults
        os.close(descriptor)


class EchoedVerifier(Verifier[VerifierSettings]):
    """The row's ``reward`` field named ``grade``, whatever the answer; ``mask`` masks it, ``grade: null`` leaves it unscored."""

    Settings: ClassVar[type[VerifierSettings]] = VerifierSettings

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        return Verdict(reward=row["grade"], masked=row.get("mask", False), extra={"said": answer.text})
