"""A rollout's task and repeat as one number of 64 bits, by which rollouts are found and ordered: by task, then by repeat."""

from __future__ import annotations


def key_of(task: int, repeat: int) -> int:
    """The key of one rollout."""
    return task << 32 | repeat


def task_of(key: int) -> int:
    """The task number of ``key``."""
    return key >> 32


def repeat_of(key: int) -> int:
    """The repeat number of ``key``."""
    return key & 0xFFFFFFFF


def counted_id(key: int) -> str:
    """``17-0``: the id of the rollout, unless its dataset gave it one."""
    return f"{key >> 32}-{key & 0xFFFFFFFF}"
