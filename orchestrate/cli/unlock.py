"""``gym eval unlock``: who holds a shard's lock, what would free it, and after a question, freeing it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import WHOLE_WORDS

if TYPE_CHECKING:
    from orchestrate.operate.unlocking import LockInTheWay


def main(argv: list[str]) -> int:
    """Explain, ask, free. Raises LockHeldError for an owner that lives, RefusedError when nobody can be asked."""
    args = _parser().parse_args(argv)
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("unlock", args.target, argv)) is not None:
        return code
    from orchestrate.operate.unlocking import free

    found = _locks(args.target)
    for lock in found:
        print(lock.shown)
    held = [lock for lock in found if _is_in_the_way(lock)]
    if not held:
        if not found:
            print("No shard of this run is locked.")
        return 0
    if not (args.yes or _is_agreed(len(held))):
        print("Nothing was changed.")
        return 0
    for lock in held:
        print(free(lock))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval unlock",
        description="Say who holds a lock and free it when its owner is gone. Example: gym eval unlock out/rollouts.jsonl",
    )
    parser.add_argument("target", metavar="PATH|RUN", help=f"{WHOLE_WORDS}; a rollouts file, or its lock")
    parser.add_argument("--yes", action="store_true", help="free it without asking; you know that the owner is gone")
    return parser


def _locks(target: str) -> list[LockInTheWay]:
    from orchestrate.named import named, whole_run
    from orchestrate.operate.unlocking import lock_at, locks_in_run

    if target.endswith((".jsonl", ".lock")):
        return [lock_at(Path(target))]
    found = named(target)
    if found.rollouts is not None:
        return [lock_at(found.rollouts.rollouts)]
    return locks_in_run(whole_run(target))


def _is_in_the_way(lock: LockInTheWay) -> bool:
    from collector.shard.lock import is_held

    return is_held(lock.path)


def _is_agreed(count: int) -> bool:
    """The answer to the question. Raises RefusedError where nobody can be asked."""
    if not sys.stdin.isatty():
        from collector.errors import RefusedError

        raise RefusedError("nobody can be asked here.", "Add --yes when you know that the owner is gone.", "unlock")
    answer = input(f"Free {'it' if count == 1 else 'these ' + counted(count, 'lock')}? Type yes: ")
    return answer.strip().lower() == "yes"
