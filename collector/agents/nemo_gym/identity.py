"""What of the running servers belongs to the experiment: the settings of every server that a run's rows reach. Pure.

Where they listen, their keys and how many workers they have do not; neither do blocks that no row reaches, nor switches at
the top of the configuration unless a setting refers to them. A text that may be a secret is kept as a digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from collector.agents.endpoint import KEY_HEADERS
from collector.agents.nemo_gym.references import MissingReferenceError, resolved
from collector.agents.nemo_gym.servers import KINDS, Server, Servers
from collector.errors import ConfigError, IdentityError

_KEY_OWNERS: Final = ("openai", "policy", "judge", "tavily", "anthropic", "model", "switchyard")
_URL_OWNERS: Final = ("openai", "policy", "judge", "sandbox_model", "model", "vllm", "switchyard")
#: Connection references as NeMo Gym knows them, at the top of a server's settings.
CONNECTION_KEYS: Final = frozenset(
    {"host", "port", "num_workers", "hf_token", "head_server", "disallowed_ports", "port_range_low", "port_range_high"}
    | {"model_call_capture_dir", "api_key", "base_url"}
    | {f"{owner}_api_key" for owner in _KEY_OWNERS}
    | {f"{owner}_base_url" for owner in _URL_OWNERS}
)
_HEADER_MAPS: Final = frozenset({"headers", "default_headers", "openai_default_headers", "artifact_request_headers"})
_SECRET_WORDS: Final = frozenset(
    {"key", "token", "secret", "password", "passwd", "credential", "credentials", "authorization", "auth", "bearer", "cookie"}
)
#: Keys whose values are secrets, whatever stands before.
_SECRET_KEYS: Final = ("api_key", "hf_token", "password")
#: Shorter values (``none``, ``dummy``) are no secrets.
_SECRET_LENGTH: Final = 8
#: A login in an address, its query, or the way providers begin their keys.
_HOLDS_SECRET: Final = re.compile(r"://\S*[@?]|\b(sk-|nvapi-|hf_|ghp_|xox[a-z]-|AKIA)|\bBearer ")
_WORD: Final = re.compile(r"[A-Za-z][a-z]*|[A-Z]+")


def servers_identity(servers: Servers, targets: Collection[str]) -> dict[str, Any]:
    """The settings of ``targets`` and of every server they lead to, by name. Raises ConfigError for one that is missing."""
    secrets = frozenset(_secrets_in(servers.config))
    return {server.name: _identity(server, servers, secrets) for server in _reachable(servers, targets)}


def check_same(checked: Servers, running: Servers, names: Collection[str]) -> None:
    """Raise IdentityError when the servers ``names``, or those behind them, run with other settings than was checked."""
    before, now = servers_identity(checked, names), servers_identity(running, names)
    different = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if different:
        raise IdentityError(
            f"the servers that run are not those of {checked.origin}: {', '.join(different)} differ.",
            "Start the servers with the settings that the run was made for, or save their configuration anew.",
            running.origin,
        )


def _reachable(servers: Servers, targets: Collection[str]) -> list[Server]:
    found: dict[str, Server] = {}
    waiting = sorted(targets, reverse=True)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = servers.get(name, whose="server")
            waiting.extend(_references_in(found[name].settings, servers))
    return [found[name] for name in sorted(found)]


def _references_in(value: Any, servers: Servers) -> Iterator[str]:
    """Names that ``{type: <kind>, name: ...}`` refer to at any depth; a reference to nothing is reported as missing."""
    if isinstance(value, Mapping):
        name, kind = value.get("name"), value.get("type")
        if isinstance(name, str) and (kind in KINDS or (kind is None and len(value) == 1 and name in servers.by_name)):
            yield name
        for item in value.values():
            yield from _references_in(item, servers)
    elif isinstance(value, list):
        for item in value:
            yield from _references_in(item, servers)


def _identity(server: Server, servers: Servers, secrets: frozenset[str]) -> dict[str, Any]:
    own = {key: value for key, value in server.settings.items() if str(key) not in CONNECTION_KEYS}
    capture = own.get("token_id_capture")
    if isinstance(capture, Mapping):
        own["token_id_capture"] = {key: value for key, value in capture.items() if key != "dir"}
    try:
        plain = resolved(own, servers.config, keep=CONNECTION_KEYS.__contains__)
    except MissingReferenceError as error:
        raise ConfigError(f"settings of server {server.name!r}: {error}.", "", servers.origin) from error
    return {"kind": server.kind, "implementation": server.implementation, "settings": _safe(plain, secrets)}


def _secrets_in(value: Any) -> Iterator[str]:
    """Keys and tokens that the configuration holds under their own names; they may be repeated under any other."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, str) and str(key).endswith(_SECRET_KEYS) and len(item) >= _SECRET_LENGTH and "${" not in item:
                yield item
            yield from _secrets_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(item)


def _safe(value: Any, secrets: frozenset[str], path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Mapping):
        is_headers = bool(path) and path[-1] in _HEADER_MAPS
        return {
            str(key): _safe(item, secrets, (*path, str(key)))
            for key, item in value.items()
            if not (is_headers and str(key).lower() in KEY_HEADERS)
        }
    if isinstance(value, list):
        return [_safe(item, secrets, path) for item in value]
    if isinstance(value, str) and (_may_be_secret(path) or _HOLDS_SECRET.search(value) or any(s in value for s in secrets)):
        return f"sha256:{hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _may_be_secret(path: tuple[str, ...]) -> bool:
    return bool(path) and any(word.lower() in _SECRET_WORDS for word in _WORD.findall(path[-1]))
