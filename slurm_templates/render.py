"""Fill in the job script: the one function that knows how sbatch and bash read a value."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from jinja2 import Environment

FlagValue: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """What a job script says. ``flags`` are long options of sbatch without their dashes."""

    flags: Mapping[str, FlagValue]
    command: Sequence[str]
    #: Options of the further components of a heterogeneous job.
    components: Sequence[Mapping[str, FlagValue]] = field(default_factory=tuple)
    #: Shell lines that run first, as they stand.
    setup: Sequence[str] = field(default_factory=tuple)


def render_job(script: JobScript) -> str:
    """The script's text. Raises ValueError for a value with a line break, which would end its directive."""
    flags, *components = [_rendered(part) for part in (script.flags, *script.components)]
    template = _environment().get_template("job.sh.j2")
    command = shlex.join(script.command)
    return template.render(flags=flags, components=components, setup=script.setup, command=command) + "\n"


def _rendered(flags: Mapping[str, FlagValue]) -> list[str]:
    return [text for name, value in flags.items() if (text := render_flag(name, value)) is not None]


def render_flag(name: str, value: FlagValue) -> str | None:
    """``--name=value``, or None when the option is left out: null, empty and false are absent, true has no value."""
    if value is None or value is False or value == "":
        return None
    if value is True:
        return f"--{name}"
    text = str(value)
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"--{name}: must be one line")
    return f"--{name}={shlex.quote(text)}"


def literal_path(path: Path | str) -> str:
    """``path`` for --output, with ``%`` doubled, since sbatch replaces ``%j`` and its like there."""
    return str(path).replace("%", "%%")


def _environment() -> Environment:
    import jinja2  # noqa: PLC0415 - 0.1 s, which commands that only name flags do without

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    # Values are quoted for the shell before they get here; HTML escapes would change them.
    return jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701
