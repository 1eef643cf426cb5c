"""What a job says in its log of the services that it waits for, and what a reader of the log makes of that. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from collector.settings import StrictModel

#: Characters of a server's own words.
_LONGEST: Final = 300
_LINE: Final = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00) .+? shard \d+ of \d+: (?P<said>.*)")
_WAITS: Final = re.compile(
    r"waiting for service (?P<service>.+?) at (?P<address>\S+), at most (?P<limit>\S+) s(?:: (?P<reason>.+))?"
)
_ANSWERS: Final = re.compile(r"service (?P<service>.+) has answered")


class ServiceWait(StrictModel):
    """A service that a job waits for: where, since when, how long it may, and what it was told last; empty before that."""

    service: str
    address: str
    since: str
    waited_s: float
    limit_s: float
    reason: str = ""


def waits_line(service: str, address: str, limit_s: float, reason: str = "") -> str:
    """What a job says while ``service`` does not answer."""
    told = " ".join(reason.split())[:_LONGEST]
    return f"waiting for service {service} at {address}, at most {limit_s:g} s{f': {told}' if told else ''}"


def answers_line(service: str) -> str:
    """What it says when the wait is over."""
    return f"service {service} has answered"


def waits_in(lines: Iterable[str], *, now: datetime) -> list[ServiceWait]:
    """The services that a job which wrote ``lines`` last waits for. ``now`` is the time in a zone."""
    waits: dict[str, ServiceWait] = {}
    for line in lines:
        # Slurm and libraries write into the log, too.
        if (ours := _LINE.fullmatch(line)) is None:
            continue
        if found := _WAITS.fullmatch(ours["said"]):
            before = waits.get(found["service"])
            since = before.since if before is not None else ours["at"]
            waits[found["service"]] = ServiceWait(
                service=found["service"],
                address=found["address"],
                since=since,
                waited_s=max(0.0, (now - datetime.fromisoformat(since)).total_seconds()),
                limit_s=float(found["limit"]),
                reason=found["reason"] or "",
            )
        elif found := _ANSWERS.fullmatch(ours["said"]):
            waits.pop(found["service"], None)
        else:
            # Whatever else a job says, it begins anew, goes on or ends.
            waits.clear()
    return list(waits.values())
