"""The loop of the sweep programs: point after point until the work ends before one is reached, and what was wrong at them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from collector.errors import GymEvalError


class Tried(NamedTuple):
    """Whether the work got as far as the point, and what was wrong afterwards."""

    is_reached: bool
    wrong: Counter[str]


class Sweep:
    """Counts over all points that were tried; prints them as the programs' one line."""

    def __init__(self) -> None:
        self.points = 0
        self.wrong = Counter[str]()

    def run(self, name: str, attempt: Callable[[int], Tried], *, step: int = 1) -> None:
        """Try every ``step``-th disk call from the first on, and say on stderr what was wrong where."""
        call = 1
        while True:
            try:
                tried = attempt(call)
            except GymEvalError as error:
                tried = Tried(True, Counter({str(error): 1}))
            if tried.wrong:
                print(f"{name}, disk call {call}: {dict(tried.wrong)}", file=sys.stderr)
            self.wrong += tried.wrong
            if not tried.is_reached:
                return
            self.points += 1
            call += step

    def report(self) -> None:
        """One JSON object on stdout."""
        print(json.dumps({"points": self.points, "wrong": dict(self.wrong)}))
