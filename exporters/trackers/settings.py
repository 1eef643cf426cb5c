"""What both trackers can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from collector.settings import Seconds
from exporters.base import RunExportConfig, Text


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")  # noqa: TRY004 - pydantic turns ValueError into its own
    return value


def _no_login(value: str) -> str:
    if "://" in value and "@" in value.split("://", 1)[1].split("/", 1)[0]:
        raise ValueError("holds a user or a password, and settings are kept and shown: leave them to the environment")
    return value


#: Of a backend. Settings stand in the plan of a run and on command lines, so credentials are refused.
Address = Annotated[Text, AfterValidator(_no_login)]


class TrackerConfig(RunExportConfig):
    """Every wait has an end: one request after ``request_timeout_s``, the whole export after ``timeout_s``."""

    upload_rollouts: bool = Field(default=False, description="send the rows too")
    report_fpath: Path | None = Field(default=None, description="a page of gym eval report to send too")
    replace: bool = Field(default=False, description="put changed results in the place of the old ones, not beside them")
    timeout_s: Seconds = Field(default=600.0, description="seconds for the whole export")
    request_timeout_s: Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=600)] = Field(
        default=30, description="seconds for one request"
    )
