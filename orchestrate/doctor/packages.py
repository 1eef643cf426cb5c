"""Whether another distribution brings packages of our names, which would be imported in place of ours or beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from orchestrate.doctor.finding import Finding, fail, ok

NAMES: Final = ("collector", "exporters", "merge", "orchestrate", "slurm_templates")
OWN: Final = "gym-eval"
_HOME: Final = Path(__file__).parents[2]


def check_packages(distributions: Mapping[str, Sequence[str]] | None = None) -> list[Finding]:
    """One finding for each name that is not ours alone, or one that all are."""
    known = packages_distributions() if distributions is None else distributions
    found = list(_clashes(known))
    return found or [ok("packages", "no other distribution has packages of these names")]


def _clashes(known: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for name in NAMES:
        others = sorted({dist for dist in known.get(name, ()) if dist.replace("_", "-").lower() != OWN})
        spec = find_spec(name)
        place = Path(spec.origin).parent.parent if spec is not None and spec.origin is not None else None
        if others:
            advice = f"Uninstall it, or install {OWN} in an environment of its own."
            yield fail("packages", f"{', '.join(others)} also has a package {name!r}", advice)
        elif place != _HOME:
            yield fail("packages", f"{name!r} is imported from {place}", f"Install {OWN} in an environment of its own.")
