"""Which rollouts of a shard were planned anew in another one: the file ``<stem>_moved.jsonl``, one rollout a line, format 1.

It is written once the other shard exists, by whoever holds this shard's lock. From then on the rollouts it names are not this
shard's: they are neither dispatched nor counted here, and no projection takes a row of theirs from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError

FORMAT: Final = 1


class Moved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line: the rollout is shard ``to``'s now."""

    schema_version: Literal[1] = FORMAT
    rollout_id: str
    to: int


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Moved] = msgspec.json.Decoder(Moved)


def read_moved(artifacts: RunArtifacts) -> dict[str, int]:
    """Each rollout that left the shard, and the index of the one that has it. Raises CorruptArtifactError."""
    try:
        data = artifacts.moved.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        found = _decoder.decode_lines(data)
    except msgspec.MsgspecError as error:
        raise CorruptArtifactError(artifacts.moved, 0, f"not a list of moved rollouts ({error}).") from error
    return {move.rollout_id: move.to for move in found}


def publish_moved(artifacts: RunArtifacts, moves: Iterable[Moved]) -> None:
    """Replace the list. The caller holds the shard's lock and names everything that left before as well."""
    durable.publish(artifacts.moved, b"".join(_encoder.encode(move) + b"\n" for move in moves))
