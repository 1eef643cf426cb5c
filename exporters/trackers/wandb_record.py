"""``gym-eval-<id>.json`` in a folder of W&B's exports: which versions of one run arrived where, or wait in which folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from collector import durable
from collector.settings import StrictModel
from exporters.source import ExportError
from exporters.trackers.package import Package

#: Ends the name of each folder of files, so that none is used twice.
MARK: Final = r"-[0-9a-f]{8}"


class Arrived(StrictModel):
    """One version at one place: the digest of what was sent, and the name of its folder when it waits to be sent on."""

    number: int
    digest: str
    folder: str | None = None


class _Content(StrictModel):
    id: str
    places: dict[str, list[Arrived]] = Field(default_factory=dict[str, list[Arrived]])


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one run. ``place`` is a server and a project, or the folder itself."""

    folder: Path
    package: Package
    place: str

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return self.folder / f"gym-eval-{self.package.id}.json"

    def arrived(self) -> Arrived | None:
        """The version that is at the place as it would be sent now, with its folder if it has one. Raises ExportError."""
        for one in self._read().places.get(self.place, []):
            if one.digest == self.package.digest and (one.folder is None or (self.folder / one.folder).is_dir()):
                return one
        return None

    def next_number(self, *, replace: bool) -> int:
        """The number of the version to send: that of the same content elsewhere, or a new one. Raises ExportError."""
        places = self._read().places
        known = [one for versions in places.values() for one in versions]
        same = next((one.number for one in known if one.digest == self.package.digest), None)
        if same is not None or replace:
            return same or 1
        return max((one.number for one in known), default=0) + 1

    def add(self, one: Arrived, *, replace: bool) -> None:
        """Keep that ``one`` arrived at the place, instead of all others with ``replace``. Folders of no version are removed."""
        content = self._read()
        others = [] if replace else [other for other in content.places.get(self.place, []) if other.number != one.number]
        content.places[self.place] = [*others, one]
        durable.publish(self.path, content.model_dump_json(indent=2, exclude_none=True).encode() + b"\n")
        self.sweep()

    def sweep(self) -> None:
        """Remove what ended exports of this run left. The caller holds the destination's lock."""
        kept = {one.folder for versions in self._read().places.values() for one in versions}
        ours = re.compile(rf"{re.escape(self.package.id)}(-v\d+)?{MARK}")
        for entry in self.folder.iterdir():
            if ours.fullmatch(entry.name) and entry.name not in kept and entry.is_dir() and not entry.is_symlink():
                durable.remove_tree(entry)

    def _read(self) -> _Content:
        try:
            content = _Content.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return _Content(id=self.package.id)
        except ValidationError as error:
            raise ExportError("is not a record of exports.", "Remove it, or name another folder.", self.path) from error
        return content
