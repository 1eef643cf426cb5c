"""What both trackers can be told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from collector.addresses import check_http, split_address
from collector.setting_kinds import Seconds, refuse_bool
from collector.settings import NamedPath
from collector.text.masked import is_credential
from exporters.base import RunExportConfig, Text

_INSTEAD: Final = "leave them to the environment"
#: host, host:5000, [::1]:5000/path, and http:host: what MLflow would take for a folder, or for a scheme that it does not know.
_SERVER: Final = re.compile(r"(https?:|[^/\\]+:[0-9]+(/|$))", re.IGNORECASE)


def check_server(value: str) -> str:
    """``value``, the address of a server. Raises ValueError, which never shows it."""
    return check_http(value, _INSTEAD, like="https://host:8000")


def check_store(value: str) -> str:
    """``value``, where MLflow keeps runs: a server, a folder, a database, or a name of its own. Raises ValueError as above."""
    if not value.isprintable() or value != value.strip():
        raise ValueError("has a space around it, a line break or another sign that no address has")
    scheme, is_address, _ = value.partition("://")
    if scheme.lower() in {"http", "https"}:
        return check_server(value)
    if is_address:
        parts = split_address(value)
        named = (pair.partition("=")[0] for pair in parts.query.split("&"))
        if "@" in parts.netloc or any(map(is_credential, named)):
            raise ValueError(f"holds a user or a password, and settings are kept and shown: {_INSTEAD}")
    elif _SERVER.match(value):
        raise ValueError("has no http:// or https:// in front; write ./ there for a folder of this name")
    return value


def variable_problem(name: str, value: str, check: Callable[[str], str]) -> str | None:
    """What ``check`` says against the address in the variable ``name``, which may carry a login as no setting may."""
    try:
        _check_variable(value, check)
    except ValueError as error:
        return f"the address in {name} {error}"
    return None


def _check_variable(value: str, check: Callable[[str], str]) -> None:
    if "://" not in value or not value.isprintable():
        check(value)
        return
    parts = split_address(value)
    if parts.scheme in {"http", "https"} and parts.query:
        raise ValueError("has a query, which no server's address has")
    # What else an address of a database says is between its owner and the database.
    check(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl())


#: The address of a server. Settings stand in the plan of a run and on command lines, so credentials are refused.
Server = Annotated[Text, AfterValidator(check_server)]
#: The address of one of the places where MLflow can keep runs.
Store = Annotated[Text, AfterValidator(check_store)]


class TrackerConfig(RunExportConfig):
    """Every wait has an end: one request after ``request_timeout_s``, the whole export after ``timeout_s``."""

    upload_rollouts: bool = Field(default=False, description="send the rows too")
    report_fpath: NamedPath | None = Field(default=None, description="a page of gym eval report to send too")
    replace: bool = Field(default=False, description="put changed results in the place of the old ones, not beside them")
    timeout_s: Seconds = Field(default=600.0, description="seconds for the whole export")
    request_timeout_s: Annotated[int, BeforeValidator(refuse_bool), Field(ge=1, le=600)] = Field(
        default=30, description="seconds for one request"
    )
