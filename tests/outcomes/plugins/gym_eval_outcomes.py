"""An agent whose every call is scripted by its row, deaths of the collector included, and a verifier that may fail.

An answer says whether the row let it reuse a deliverable. The row's ``acts`` lists what the rollout's first, second, ... call over all processes does; calls beyond the list answer.
An act is ``answer``, ``die`` (SIGKILL to the collector), ``hang``, ``raise`` or an object with the fields of a failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

from collector.agents.base import Agent, AgentSettings
from collector.outcomes import Answer, Delivery, Failure, FailureClass, FailureKind, FailureSource, Verdict
from collector.verifiers.base import Verifier, VerifierSettings


class ActedSettings(AgentSettings):
    """``log``: one line a call, the rollout's id, written before the act."""

    log: Path
    delay_s: float = 0.0


class ActedAgent(Agent[ActedSettings]):
    """Does what the row says."""

    Settings: ClassVar[type[AgentSettings]] = ActedSettings

    async def answer(self, row: dict[str, Any]) -> Answer | Failure:
        nth = self._note(f"{row['_ng_task_index']}-{row['_ng_rollout_index']}")
        acts = row.get("acts", [])
        act = acts[nth] if nth < len(acts) else "answer"
        await asyncio.sleep(self.settings.delay_s)
        if act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "hang":
            await asyncio.sleep(3600)
        if act == "raise":
            raise KeyError("a bug of the agent")
        if isinstance(act, dict):
            return failure_of(act)
        text = row.get("say", "four")
        output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
        reused = row.get("reuse_cached_deliverable", False)
        return Answer(response={"object": "response", "id": f"answer-{nth}", "output": output, "reused": reused}, text=text)

    def _note(self, rollout: str) -> int:
        descriptor = os.open(self.settings.log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        before = os.pread(descriptor, 1 << 20, 0).decode().split()
        os.write(descriptor, f"{rollout}\n".encode())
        os.close(descriptor)
        return before.count(rollout)


def failure_of(act: dict[str, Any]) -> Failure:
    defaults = {"failure_class": FailureClass.AGENT_RUN_ERROR, "reason": "scripted", "delivery": Delivery.DELIVERED}
    return Failure(**{**defaults, **act, "source": FailureSource(act.get("source", "collector"))})


class JudgedVerifier(Verifier[VerifierSettings]):
    """The row's ``grade``; a row with ``judge: down`` has its judge fail, and ``judge: bug`` raises."""

    Settings: ClassVar[type[VerifierSettings]] = VerifierSettings

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        if row.get("judge") == "down":
            return Failure(
                failure_class=FailureClass.JUDGE_FAILED,
                kind=FailureKind.JUDGE_FAILED,
                reason="HTTP 500 from the judge",
                delivery=Delivery.DELIVERED,
                http_status=500,
                response=answer.response,
            )
        if row.get("judge") == "bug":
            raise ZeroDivisionError("a bug of the verifier")
        return Verdict(reward=row["grade"], masked=row.get("mask", False), extra=row.get("judgement", {}))
