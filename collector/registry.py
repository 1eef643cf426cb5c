"""Names to implementations, loaded only when used: agents, verifiers, exporters and executors share this one mechanism."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from collector.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """What can be named in a configuration under one kind. ``builtin`` maps a name to ``module:Class``.

    Other people's packages add names by entry points of ``group``; they may not take a built-in name.
    """

    kind: str
    group: str
    base: type[T]
    builtin: Mapping[str, str] = field(default_factory=dict[str, str])

    def names(self) -> list[str]:
        """Every name that can be used, sorted. Imports no implementation."""
        return sorted({*self.builtin, *self._plugins()})

    def load(self, name: str) -> type[T]:
        """The class called ``name``. Raises ConfigError that lists the choices, or says why a plug-in cannot be used."""
        plugins = self._plugins()
        if name in self.builtin:
            if name in plugins:
                raise ConfigError(
                    f"{self.kind} {name!r} is built in and {_origin(plugins[name])} registers the same name.",
                    "Uninstall that package or ask its authors for another name.",
                )
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(import_module(module), attribute)
        if name in plugins:
            return self._load_plugin(plugins[name])
        raise ConfigError(f"unknown {self.kind} {name!r}.", unknown_name_hint(name, self.names()))

    def _plugins(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        installed: Iterable[EntryPoint] = _installed(tuple(sys.path)).select(group=self.group)
        for entry in installed:
            if entry.name in found and found[entry.name].value != entry.value:
                raise ConfigError(
                    f"{self.kind} {entry.name!r} is registered by {_origin(found[entry.name])} and {_origin(entry)}.",
                    "Uninstall one of them.",
                )
            found[entry.name] = entry
        return found

    def _load_plugin(self, entry: EntryPoint) -> type[T]:
        try:
            loaded = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{self.kind} {entry.name!r} of {_origin(entry)} cannot be loaded: {error}.") from error
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            raise ConfigError(f"{self.kind} {entry.name!r} of {_origin(entry)} is not a {self.base.__name__}.")
        return loaded


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> Any:  # noqa: ARG001 - what they depend on
    """Every entry point of what is installed on ``path``: a file a package, on a shared disk often, so they are read once."""
    # All groups at once: what comes is of another type in each version of Python, and can select in all of them.
    return entry_points()


def unknown_name_hint(name: str, choices: list[str]) -> str:
    """``Did you mean 'x'? Choose from: ...`` for a name that is not among ``choices``."""
    near = difflib.get_close_matches(name, choices, n=1)
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"{guess}Choose from: {', '.join(choices) or 'nothing is registered'}."


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value
