"""Grading by a function of the user: ``module:function`` with the row, the answer's text and the whole response."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from collector import jsonl
from collector.errors import ConfigError
from collector.outcome_checks import is_reserved, is_reward, shown, told
from collector.outcomes import Answer, Failure, Verdict
from collector.setting_kinds import Seconds
from collector.settings import REPORTING
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.patterns import grading_failed

#: A key of a row that a grader's extra keys may not replace, besides those that no verdict may.
_QUESTION: Final = "responses_create_params"


class _EndedError(Exception):
    """A grader raised what no future can hold, or what ends more than the grader: ``sys.exit()`` say."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(raised)
        self.raised = raised


class PythonSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: python``; ``verifier: python:module:function`` is the short form."""

    #: ``module:function``, importable where the run starts.
    function: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    #: Passed to every call by name.
    kwargs: dict[str, Any] = Field(default_factory=dict)
    timeout_s: Seconds = Field(default=60.0, json_schema_extra=REPORTING)


class PythonVerifier(Verifier[PythonSettings]):
    """Reward from ``function(row, answer_text, response, **kwargs)``: a finite number, or a dict with ``reward`` and more.

    The function may be async. A plain one runs in a thread of its own, which cannot be ended: after ``timeout_s`` the
    answer counts as failed and the thread is left behind. Whatever is no finite number is a failure, never a score.
    """

    Settings = PythonSettings

    def __init__(self, settings: PythonSettings) -> None:
        super().__init__(settings)
        self._function = load_function(settings.function)

    def identity(self) -> dict[str, Any]:
        """The digest of the file that defines the function: another grader is another experiment."""
        source = inspect.getsourcefile(inspect.unwrap(self._function))
        return {"source_digest": hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else None}

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Call the function; what it raises becomes a failure of this answer."""
        try:
            result = await asyncio.wait_for(self._call(row, answer), self.settings.timeout_s)
        except TimeoutError:
            reason = f"{self.settings.function} did not end within {self.settings.timeout_s:g} s"
            return grading_failed(reason, "TimeoutError")
        except Exception as error:  # noqa: BLE001 - a user's bug fails its own answer, never the run
            raised = error.raised if isinstance(error, _EndedError) else error
            return grading_failed(f"{self.settings.function} raised {told(raised)}", type(raised).__name__)
        return verdict_of(result, self.settings.function)

    async def _call(self, row: dict[str, Any], answer: Answer) -> Any:
        function, kwargs = self._function, self.settings.kwargs
        if inspect.iscoroutinefunction(function):
            try:
                return await function(row, answer.text, answer.response, **kwargs)
            except SystemExit as error:
                # It would go past whoever waits for this task and end the run.
                raise _EndedError(error) from error
        return await in_thread(lambda: function(row, answer.text, answer.response, **kwargs))


def load_function(name: str) -> Callable[..., Any]:
    """The function called ``module:function``. Raises ConfigError that says which part is missing."""
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError) as error:
        hint = "Its module must be importable where the run starts: install it, or set PYTHONPATH."
        raise ConfigError(f"verifier.function: {name} cannot be loaded: {error}.", hint) from error
    if not callable(found):
        raise ConfigError(f"verifier.function: {name} is not a function.")
    return found


def verdict_of(result: Any, name: str) -> Verdict | Failure:
    """The verdict in what a grader returned."""
    extra: dict[Any, Any] = {}
    reward: Any = result
    if isinstance(result, dict):
        extra = {key: value for key, value in result.items() if key != "reward"}
        reward = result.get("reward")
    if not is_reward(reward):
        return grading_failed(f"{name} gave the reward {shown(reward)}, which is no finite number", "InvalidReward")
    bad = sorted(map(shown, (key for key in extra if is_reserved(key) or key == _QUESTION)))
    if bad:
        return grading_failed(f"{name} gave keys that are reserved: {', '.join(bad)}", "ReservedKey")
    try:
        jsonl.dumps(extra)
    except (TypeError, ValueError) as error:
        return grading_failed(f"{name} gave a value that JSON cannot hold: {error}", type(error).__name__)
    return Verdict(reward=float(reward), extra=extra)


async def in_thread(function: Callable[[], Any]) -> Any:
    """What ``function`` returns or raises, run in a daemon thread: one that never ends does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:  # noqa: BLE001 - it is raised again where the result is awaited
            is_plain = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
            error = raised if is_plain else _EndedError(raised)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="grader", daemon=True).start()
    return await future
