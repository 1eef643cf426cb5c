"""``{services.judge.url}``, ``.model`` and ``.port`` in a benchmark's ``run``: of a service whose port only its job knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collector.registry import unknown_name_hint

#: Stands for the address of a service that gets its port in the job: a host that by its domain cannot be. It reaches the
#: recorded settings of a run, which people and trackers read. Where a model answers is not part of the experiment.
UNKNOWN_PORT_URL: Final = "http://port-chosen-by-the-job.invalid/v1"
_FACTS: Final = ("url", "model", "port")
_REFERENCE: Final = re.compile(r"\{services\.([^{}]+)\.([a-z_]+)\}")


def fill_references(value: Any, facts: Mapping[str, Mapping[str, str]]) -> Any:
    """``value`` with every reference in its texts replaced; one that names nothing known stays as it stands."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: facts.get(found[1], {}).get(found[2], found[0]), value)
    if isinstance(value, Mapping):
        return {key: fill_references(item, facts) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_references(item, facts) for item in value]
    return value


def reference_problems(value: Any, services: list[str], path: str = "") -> Iterator[str]:
    """Each reference below ``value`` that names no service or nothing of one, with its key path."""
    if isinstance(value, str):
        for name, fact in _REFERENCE.findall(value):
            if name not in services:
                yield f"{path}: no service {name!r}. {unknown_name_hint(name, services).rstrip('.')}"
            elif fact not in _FACTS:
                yield f"{path}: a service has no {fact!r}. {unknown_name_hint(fact, list(_FACTS)).rstrip('.')}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from reference_problems(item, services, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from reference_problems(item, services, f"{path}[{index}]")
