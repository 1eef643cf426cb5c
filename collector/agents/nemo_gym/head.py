"""The merged configuration of the running servers: from a saved file, from the environment, or from the head server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from collector import jsonl
from collector.agents.nemo_gym.servers import Servers
from collector.agents.nemo_gym.settings import NemoGymSettings
from collector.errors import ConfigError, NotFoundError, UnavailableError
from collector.settings import Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import HttpReply

#: NeMo Gym gives its own processes the configuration in this variable; the head server is not asked then.
CONFIG_VARIABLE: Final = "NEMO_GYM_CONFIG_DICT"
_SAVE = "or save the answer of /global_config_dict_yaml while they run, and name the file in agent.config_file"


def checked_servers(settings: NemoGymSettings, environ: Mapping[str, str] = os.environ) -> Servers:
    """The servers that a run is prepared for: those of ``config_file`` when it is given, else the running ones.

    Fetched once in the life of a process, and waited for: an event loop calls it in a thread. Raises ConfigError,
    NotFoundError or UnavailableError.
    """
    if settings.config_file is not None:
        return _from_file(settings.config_file)
    return _running(settings.head_server.url, settings.head_timeout_s, environ.get(CONFIG_VARIABLE))


async def running_servers(settings: NemoGymSettings, environ: Mapping[str, str] = os.environ) -> Servers:
    """The servers as they run now. Those that a run was just prepared for are not asked for a second time."""
    injected = environ.get(CONFIG_VARIABLE)
    # In a thread: signals and the services of a job are heeded while the head server is asked.
    servers = await asyncio.to_thread(_running, settings.head_server.url, settings.head_timeout_s, injected)
    # A collector that begins again in this process may meet servers that were started again, on other ports.
    forget()
    return servers


def forget() -> None:
    """Ask anew when the servers are wanted the next time."""
    _running.cache_clear()


@lru_cache(maxsize=4)
def _running(url: str, timeout_s: float, injected: str | None) -> Servers:
    if injected is not None:
        return Servers(_parse(injected, CONFIG_VARIABLE), origin=CONFIG_VARIABLE)
    with ThreadPoolExecutor(max_workers=1) as thread:
        # A loop of its own: whoever asks may stand inside of one.
        text = thread.submit(lambda: asyncio.run(_fetch(url, timeout_s))).result()
    return Servers(_parse(text, url), origin=url)


def _from_file(path: Path) -> Servers:
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise NotFoundError("there is no such file.", "Check agent.config_file.", path) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}.", "Check agent.config_file.", path) from error
    return Servers(_parse(text, str(path)), origin=str(path))


async def _fetch(url: str, timeout_s: float) -> str:
    limits = Timeouts(connect_s=min(10.0, timeout_s), request_s=timeout_s, stall_s=timeout_s)
    async with HttpClient(limits) as client:
        exchange = await client.get(url)
    if not isinstance(exchange, HttpReply):
        raise UnavailableError(f"the head server does not answer: {exchange.reason}.", f"Start the servers, {_SAVE}.", url)
    if exchange.status != 200:
        raise UnavailableError(f"the head server answers {exchange.status}.", "Check head_server.host and port.", url)
    try:
        text = jsonl.loads(exchange.body)
    except ValueError as error:
        raise ConfigError(f"not the answer of a head server ({error}).", "Check head_server.host and port.", url) from error
    if not isinstance(text, str):
        raise ConfigError("not the answer of a head server (no text).", "Check head_server.host and port.", url)
    return text


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        # A saved answer of the head server is a JSON text that holds the YAML; both forms are read.
        data = yaml.safe_load(text)
        data = yaml.safe_load(data) if isinstance(data, str) else data
    except yaml.YAMLError as error:
        # Its own words quote the text, which holds keys.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigError(f"not a configuration: no valid YAML{place}.", "Check where it comes from.", where) from None
    if not isinstance(data, dict):
        raise ConfigError(f"not a configuration: a {type(data).__name__} at the top level.", "", where)
    return data
