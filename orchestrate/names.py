"""Names of benchmarks and runs as names of files: reversible, legal everywhere, and without what Slurm or a shell expands."""

from __future__ import annotations

from collections.abc import Iterable

from collector.text.counted import counted
from collector.text.visible import visible

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
#: Room for the additions that temporaries and companions make within the 255 bytes of a file name.
SLUG_LIMIT = 160
#: Names that a run directory uses itself.
RESERVED = frozenset(
    {"plan.json", "resolved-config.yaml", "gym-job.json", "submissions.jsonl", "submit.lock", "slots", "shard-facts.json"}
    | {"packs"}
)


def slug(name: str) -> str:
    """``name`` as a file name; every byte outside ``[A-Za-z0-9._-]`` is ``+XX``, as is a dot or dash in front."""
    parts = [chr(byte) if byte in _SAFE else f"+{byte:02X}" for byte in name.encode()]
    if parts and parts[0] in {".", "-"}:
        parts[0] = f"+{ord(parts[0]):02X}"
    return "".join(parts)


def name_problems(names: Iterable[str], *, prefix: str) -> list[str]:
    """Why some of ``names`` cannot be directories side by side; on some file systems case makes no difference."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    for name in names:
        text = slug(name)
        if not text:
            problems.append(f"{prefix}: a name is empty")
        elif len(text) > SLUG_LIMIT:
            problems.append(
                f"{prefix}.{name[:40]}...: needs {counted(len(text), 'byte')} as a file name, the limit is {SLUG_LIMIT}"
            )
        elif (shown := visible(name)) != name:
            problems.append(f"{prefix}.{shown}: a name has no characters that cannot be seen, and this has; choose another")
        elif text in RESERVED:
            problems.append(f"{prefix}.{name}: a file of the run directory has this name; choose another")
        elif (other := seen.setdefault(text.casefold(), name)) != name:
            problems.append(f"{prefix}.{name}: cannot be told from {other!r} where file names ignore case")
    return problems
