"""Many merges and finishers of one benchmark at the same moment: forked from one process, let go together.

    python -m tests.merge.at_once COUNT TARGET SHARD...

Prints one word for each: what it found or did.
"""

from __future__ import annotations

import os
import sys
import traceback

from tests.merge import jobs


def main(count: int, target: str, shards: list[str]) -> None:
    gate, opener = os.pipe()
    children: list[tuple[int, int]] = []
    for number in range(count):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(opener)
            os.read(gate, 1)
            os._exit(_work(number, target, shards, writer))
        os.close(writer)
        children.append((child, reader))
    # Closing the last write end lets all of them go.
    os.close(opener)
    for child, reader in children:
        words = b"".join(iter(lambda reader=reader: os.read(reader, 4096), b""))
        print(words.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _work(number: int, target: str, shards: list[str], writer: int) -> int:
    try:
        if number % 2:
            word = jobs.finish(target, shards, {}).state.value
        else:
            jobs.merge(shards, target)
            word = "merge"
        os.write(writer, word.encode())
    except BaseException:  # noqa: BLE001 - a child tells its parent whatever ended it
        os.write(writer, traceback.format_exc().encode())
        return 1
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
