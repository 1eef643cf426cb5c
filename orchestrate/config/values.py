"""Scalar values of a submit YAML that need more than a type: durations, environment references, sbatch arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, PlainValidator

from collector.errors import ConfigError
from collector.text.counted import counted

_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<hours>\d+):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)", re.ASCII)
_SHORT = re.compile(r"(?P<count>\d+)(?P<unit>[mh])", re.ASCII)
_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})", re.ASCII)
_DURATION_FORMS = 'write "MM", "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM", "D-HH:MM:SS", "90m" or "4h", in quotes'
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FLAG = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_WALLTIME_FORMS = 'write "HH:MM:SS", "D-HH:MM:SS", "90m" or "4h", in quotes'


class EnvSource(StrEnum):
    """Where the value of an environment entry comes from."""

    #: The text itself.
    LIT = "lit"
    #: A variable of the submitting shell; must exist when the run is submitted.
    HOST = "host"
    #: A variable of the compute node; must exist when the job runs.
    RUNTIME = "runtime"


class EnvReference(NamedTuple):
    """``lit:TEXT``, ``host:NAME`` or ``runtime:NAME``, taken apart."""

    source: EnvSource
    text: str


def parse_env(value: str) -> EnvReference:
    """The reference that ``value`` writes. Raises ValueError when it has no known prefix or names no variable."""
    prefix, colon, text = value.partition(":")
    if not colon or prefix not in set(EnvSource):
        raise ValueError("must start with lit:, host: or runtime:")
    source = EnvSource(prefix)
    if source is not EnvSource.LIT and not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of an environment variable")
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return EnvReference(source, text)


def resolve_env(entries: Mapping[str, str], environ: Mapping[str, str], *, where: str) -> dict[str, str]:
    """The entries as variables with values. Raises ConfigError that names each variable ``environ`` lacks."""
    references = {name: parse_env(value) for name, value in entries.items()}
    missing = [ref.text for ref in references.values() if ref.source is not EnvSource.LIT and ref.text not in environ]
    if missing:
        raise ConfigError(f"environment variable {', '.join(missing)} is not set.", "Export it and submit again.", where)
    return {name: ref.text if ref.source is EnvSource.LIT else environ[ref.text] for name, ref in references.items()}


def missing_host_variables(entries: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """The ``host:`` variables that ``entries`` name and the submitting shell does not have."""
    references = map(parse_env, entries.values())
    return [ref.text for ref in references if ref.source is EnvSource.HOST and ref.text not in environ]


def walltime_seconds(text: str) -> int:
    """The seconds that a walltime means. Raises ValueError with the accepted forms."""
    if short := _SHORT.fullmatch(text):
        seconds = int(short["count"]) * (60 if short["unit"] == "m" else 3600)
    elif clock := _CLOCK.fullmatch(text):
        hours = int(clock["days"] or 0) * 24 + int(clock["hours"])
        seconds = hours * 3600 + int(clock["minutes"]) * 60 + int(clock["seconds"])
    else:
        raise ValueError(f"{text!r} is not a walltime: {_WALLTIME_FORMS}")
    if seconds == 0:
        raise ValueError("a walltime of zero lets nothing run")
    return seconds


def duration_seconds(text: str) -> int:
    """The seconds that ``text`` means in any of Slurm's notations, or as ``90m`` or ``4h``. Raises ValueError with the forms.

    A bare number is minutes and two numbers are minutes and seconds, as Slurm reads them; after days come hours.
    """
    if short := _SHORT.fullmatch(text):
        seconds = int(short["count"]) * (60 if short["unit"] == "m" else 3600)
    elif found := _DURATION.fullmatch(text):
        parts = [int(part) for part in found["clock"].split(":")]
        if found["days"] is not None:
            hours, minutes, rest = (*parts, 0, 0)[:3]
        elif len(parts) == 3:
            hours, minutes, rest = parts
        else:
            hours, minutes, rest = 0, parts[0], (*parts, 0)[1]
        seconds = int(found["days"] or 0) * 86400 + hours * 3600 + minutes * 60 + rest
    else:
        raise ValueError(f"{text!r} is not a duration: {_DURATION_FORMS}")
    if seconds == 0:
        raise ValueError("a duration of zero lets nothing run")
    return seconds


def slurm_time(seconds: int) -> str:
    """``seconds`` in the one notation that sbatch cannot misread: ``D-HH:MM:SS``."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}"


def in_words(seconds: int) -> str:
    """``2 days 12 hours``: a duration that a person can check."""
    names = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
    parts: list[str] = []
    for name, size in names:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(counted(count, name))
    return " ".join(parts)


def _check_walltime(value: Any) -> str:
    if isinstance(value, int | float):
        # YAML 1.1 reads 12:00:00 as 43200, which sbatch would take for minutes.
        raise ValueError(f"quote it: YAML made the number {value} of it; {_WALLTIME_FORMS}")  # noqa: TRY004 - for pydantic
    if not isinstance(value, str):
        raise ValueError(_WALLTIME_FORMS)  # noqa: TRY004 - pydantic turns ValueError into its own
    walltime_seconds(value)
    return value


def _check_duration(value: Any) -> str:
    if not isinstance(value, str):
        made = f"YAML made the {type(value).__name__} {value} of it; " if isinstance(value, int | float) else ""
        raise ValueError(f"quote it: {made}{_DURATION_FORMS}")  # noqa: TRY004 - pydantic turns ValueError into its own
    duration_seconds(value)
    return value


def _check_env(value: str) -> str:
    parse_env(value)
    return value


def _check_variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of an environment variable")
    return value


def _check_line(value: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("must be one line without control characters")
    return value


def _check_flag(value: str) -> str:
    if not _FLAG.fullmatch(value):
        raise ValueError(f"{value!r} is not a long sbatch option: write it without dashes in front, as in 'mail-user'")
    return value


def _check_argument(value: Any) -> str | int | float | bool | None:
    if value is not None and not isinstance(value, str | int | float | bool):
        raise ValueError("must be a text, a number, true, false or null")
    return _check_line(value) if isinstance(value, str) else value


def _empty_is_absent(value: Any) -> Any:
    return None if value == "" else value


Walltime = Annotated[str, BeforeValidator(_check_walltime)]
Duration = Annotated[str, BeforeValidator(_check_duration)]
EnvText = Annotated[str, AfterValidator(_check_env)]
VariableName = Annotated[str, AfterValidator(_check_variable)]
Line = Annotated[str, AfterValidator(_check_line)]
OptionalLine = Annotated[Line | None, BeforeValidator(_empty_is_absent)]
FlagName = Annotated[str, AfterValidator(_check_flag)]
FlagValue = Annotated[str | int | float | bool | None, PlainValidator(_check_argument)]
EnvMap = dict[VariableName, EnvText]
