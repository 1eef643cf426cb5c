"""``${a.b.c}`` in a configuration that is plain data: NeMo Gym's head server hands it out as it was written. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

#: An absolute path of keys; resolvers such as ``${oc.env:HOME}`` and relative paths stay as they stand.
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][\w-]*(?:\.[\w-]+)*)\}")
#: A reference may lead to another; more than this many lead in a circle.
_DEPTH: Final = 20


class MissingReferenceError(ValueError):
    """A reference leads nowhere, or in a circle."""


def resolved(value: Any, root: Mapping[str, Any], *, keep: Callable[[str], bool] = lambda _: False, depth: int = _DEPTH) -> Any:
    """``value`` with every reference replaced by what it leads to in ``root``; one whose last key ``keep`` wants stays text.

    Raises MissingReferenceError.
    """
    if isinstance(value, Mapping):
        return {key: resolved(item, root, keep=keep, depth=depth) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, root, keep=keep, depth=depth) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    if depth == 0:
        raise MissingReferenceError(f"{value!r} leads in a circle")
    whole = _REFERENCE.fullmatch(value)
    if whole is not None:
        return value if keep(_last(whole[1])) else resolved(_find(root, whole[1]), root, keep=keep, depth=depth - 1)

    def fill(found: re.Match[str]) -> str:
        if keep(_last(found[1])):
            return found[0]
        return str(resolved(_find(root, found[1]), root, keep=keep, depth=depth - 1))

    return _REFERENCE.sub(fill, value)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _find(root: Mapping[str, Any], path: str) -> Any:
    node: Any = root
    for key in path.split("."):
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            raise MissingReferenceError(f"${{{path}}} leads nowhere")
    return node
