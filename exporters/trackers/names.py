"""Names as a backend can hold them: deterministic, bounded, and never two figures under one name. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

#: MLflow: letters, digits, _ - . : / and space, 250 characters, a clean relative path.
MLFLOW_LONGEST: Final = 250
#: W&B stores any text; longer names cannot be read anywhere.
WANDB_LONGEST: Final = 250
#: W&B: names of artifacts.
ARTIFACT_LONGEST: Final = 128
_DIGEST: Final = 8


def mlflow_name(name: str) -> str:
    """``name`` under MLflow's rules; ``pass@1`` is ``pass_at_1``, as NeMo Gym writes it."""
    cleaned = re.sub(r"[^\w/.\-: ]", "_", name.replace("@", "_at_"))
    segments = [part if part.strip(".") else "_" * len(part) for part in cleaned.split("/") if part]
    return bounded("/".join(segments) or f"unnamed_{digest_of(name)}", MLFLOW_LONGEST)


def wandb_name(name: str) -> str:
    """``name`` under W&B's rules: no control characters, and no leading underscore, which marks its own keys."""
    cleaned = "".join(sign if sign.isprintable() else "_" for sign in name)
    if cleaned.startswith("_") or not cleaned:
        cleaned = f"name{cleaned or '_' + digest_of(name)}"
    return bounded(cleaned, WANDB_LONGEST)


def bounded(name: str, longest: int) -> str:
    """``name`` in at most ``longest`` characters: its head and tail with a digest of the whole between them."""
    if len(name) <= longest:
        return name
    middle = f"___{digest_of(name)}___"
    kept = longest - len(middle)
    return name[: kept - kept // 2] + middle + name[len(name) - kept // 2 :]


def digest_of(name: str) -> str:
    """Eight hex digits that tell names apart."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]


def rename(names: Iterable[str], rule: Callable[[str], str], *, longest: int, has_folders: bool = False) -> dict[str, str]:
    """Each of ``names`` to its name in the backend. No two are equal under any case.

    A name that is legal as it stands keeps itself; the others that would meet get a digest of what they were. A backend that
    ``has_folders`` keeps each name as a file, so that none may be a folder of another.
    """
    wanted = {name: rule(name) for name in names}
    taken = Counter(made.casefold() for made in wanted.values())
    folders = _folders(wanted.values()) if has_folders else set[str]()
    found: dict[str, str] = {}
    for name, made in wanted.items():
        meets = taken[made.casefold()] > 1 and (made != name or _is_later_twin(name, wanted))
        found[name] = _told_apart(made, name, longest) if meets or made.casefold() in folders else made
    return found


def _folders(names: Iterable[str]) -> set[str]:
    return {name.casefold().rsplit("/", depth)[0] for name in names for depth in range(1, name.count("/") + 1)}


def _is_later_twin(name: str, wanted: dict[str, str]) -> bool:
    """Whether another name that differs by case only keeps itself."""
    twins = sorted(other for other, made in wanted.items() if made == other and other.casefold() == name.casefold())
    return bool(twins) and twins[0] != name


def _told_apart(made: str, name: str, longest: int) -> str:
    return bounded(made, longest - _DIGEST - 1) + "_" + digest_of(name)


def stable_id(run_id: str, benchmark: str, version: int = 1) -> str:
    """The identity of a run in every tracker, the same for every export of it: letters, digits and hyphens, 64 at most."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", benchmark).strip("-").lower()[:32] or "run"
    digest = hashlib.sha256(f"{run_id}\0{benchmark}".encode()).hexdigest()[:16]
    return f"{slug}-{digest}" + (f"-v{version}" if version > 1 else "")
