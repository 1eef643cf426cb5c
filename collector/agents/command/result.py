"""What a command says of itself when it is done: the file that ``GYM_EVAL_RESULT`` names, and the end of its output."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.outcome_checks import is_reserved, is_reward
from collector.outcomes import Verdict
from collector.text.masked import without_secrets

#: A result is a handful of numbers; more than this is something else.
MOST_BYTES: Final = 1 << 20
#: Keys of rows whose readers want something other than a number.
_TAKEN: Final = frozenset({"command", "responses_create_params", "agent_ref"})
_LAST_LINES: Final = 12
_LAST_CHARS: Final = 1500


def read_result(path: Path) -> Verdict:
    """The verdict that the command wrote; without a file it is unscored. Raises ValueError with what is wrong with the file."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Verdict(reward=None)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES} bytes")
    return _verdict(data)


def _verdict(data: bytes) -> Verdict:
    try:
        value = jsonl.loads(data)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - data
    if not is_reward(value.get("reward")):
        raise ValueError("its reward is not a finite number" if "reward" in value else "it has no reward")
    metrics: dict[str, Any] = {key: number for key, number in value.items() if key != "reward"}
    if reserved := sorted(key for key in metrics if is_reserved(key) or key in _TAKEN or key.startswith("ng_")):
        raise ValueError(f"keys that a row has for itself: {', '.join(reserved)}")
    if others := sorted(key for key, number in metrics.items() if not is_reward(number)):
        raise ValueError(f"values that are no finite numbers: {', '.join(others)}")
    return Verdict(reward=value["reward"], extra=metrics)


def last_words(log: Path, environ: Mapping[str, str]) -> str:
    """The end of what it wrote, in one line, without values of variables that are credentials by their name."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        said = without_secrets(" | ".join(lines[-_LAST_LINES:]), None, environ)
        return f"its last words: {said[-_LAST_CHARS:]}" if said else "it wrote nothing"
    return "its log cannot be read"
