"""What a prepared run is: its identity, field by field, and its inventory's digest. Written last: it proves preparation."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from collector import jsonl
from collector.errors import CorruptArtifactError, IdentityError, RefusedError
from collector.formats.differences import differences
from collector.settings import StrictModel

FORMAT: Final = 1
#: More than anybody plans, and few enough to say which are missing.
MOST_SHARDS: Final = 1 << 22
#: A float holds every whole number up to here, and shares of rollouts are floats.
MOST_ROLLOUTS: Final = 1 << 53


class ShardPlace(StrictModel):
    """Which part of a benchmark's inventory this shard holds. ``count`` of one ``whole_digest`` make it complete."""

    index: int = Field(ge=0, lt=MOST_SHARDS)
    count: int = Field(ge=1, le=MOST_SHARDS)
    whole_digest: str
    whole_expected: int = Field(ge=1, le=MOST_ROLLOUTS)


class Manifest(StrictModel):
    """The record ``<stem>_manifest.json``, format 1."""

    schema_version: Literal[1] = FORMAT
    selection_policy: Literal["latest_dispatched"] = "latest_dispatched"
    run_id: str
    benchmark: str
    created_at: str
    expected: int = Field(ge=1, le=MOST_ROLLOUTS)
    source_digest: str
    inventory_digest: str
    config_digest: str
    #: The normalized experiment configuration behind ``config_digest``, so that a mismatch can be shown field by field.
    config: dict[str, Any]
    shard: ShardPlace | None = None
    legacy_import: bool = False
    identity_overridden: bool = False

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with a final newline, since people read it."""
        return self.model_dump_json(indent=2).encode() + b"\n"


def describe_run(
    config: dict[str, Any],
    *,
    benchmark: str,
    expected: int,
    source_digest: str,
    inventory_digest: str,
    run_id: str | None = None,
    is_legacy: bool = False,
    is_overridden: bool = False,
) -> Manifest:
    """The manifest of a run of the experiment ``config``, made now; ``run_id`` is new unless given."""
    plain = jsonl.loads(jsonl.canonical(config))
    return Manifest(
        run_id=run_id or uuid.uuid4().hex,
        benchmark=benchmark,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        expected=expected,
        source_digest=source_digest,
        inventory_digest=inventory_digest,
        config_digest=digest_of(plain),
        config=plain,
        legacy_import=is_legacy,
        identity_overridden=is_overridden,
    )


def parse_manifest(data: bytes, path: Path) -> Manifest:
    """The manifest in ``data``. Raises CorruptArtifactError for another format number or any unknown or missing key."""
    try:
        value = jsonl.loads(data)
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version != FORMAT:
            what = f"manifest format {version!r} is not supported (this program reads format {FORMAT})."
            raise CorruptArtifactError(path, 0, what, "Use the version of gym-eval that wrote it, or start a new run.")
        if b"\\ud" in data.lower():
            jsonl.require_utf8(value)
        return Manifest.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise CorruptArtifactError(path, 0, f"not a manifest ({problems}).") from error
    except ValueError as error:
        raise CorruptArtifactError(path, 0, f"not JSON ({error}).") from error


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at ``path``; None when there is no such file."""
    try:
        if path.is_fifo():
            # To open a pipe is to wait for whoever writes into it.
            raise CorruptArtifactError(path, 0, "a pipe, and no manifest.")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusedError(f"it cannot be read: {error.strerror}.", "Mend that, or use another output path.", path) from error
    return parse_manifest(data, path)


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value``, in hex."""
    return hashlib.sha256(jsonl.canonical(value)).hexdigest()


def check_identity(saved: Manifest, wanted: Manifest, path: Path) -> None:
    """Raise IdentityError with every field that differs, unless both describe one experiment."""
    found = _differences(saved, wanted)
    if found:
        shown = "; ".join(found[:20]) + ("; ..." if len(found) > 20 else "")
        raise IdentityError(
            f"the saved work belongs to another experiment: {shown}.",
            "Use another output path for the new experiment, or give back the old settings.",
            path,
        )


def _differences(saved: Manifest, wanted: Manifest) -> list[str]:
    found = [difference.shown for difference in differences(saved.config, wanted.config)]
    if saved.source_digest != wanted.source_digest:
        found.append("the dataset's content")
    if saved.inventory_digest != wanted.inventory_digest and not found:
        found.append("the materialized inputs")
    if saved.shard != wanted.shard:
        found.append(f"the shard: saved {_place(saved.shard)}, now {_place(wanted.shard)}")
    return found


def _place(shard: ShardPlace | None) -> str:
    return "none" if shard is None else f"{shard.index} of {shard.count}"
