"""How help, tables and errors name runs and their shards; apart from what finds them, since a command's help does without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collector.text.counted import counted

#: For commands that read results.
RUN_WORDS: Final = "a run's name or its beginning, NAME/BENCHMARK, its directory, a benchmark's, or a rollouts file"
#: For commands that are about jobs, and can be about those of one benchmark.
SUBMITTED_WORDS: Final = "a submitted run's name or its beginning, NAME/BENCHMARK, or its directory or a benchmark's"
#: For commands that work on all of a run.
WHOLE_WORDS: Final = "a submitted run's name or its beginning, or its directory"

#: Shards that are named one by one.
_MOST_SHARDS: Final = 8


def shards_in_words(indexes: Sequence[int]) -> str:
    """``shard 3``, ``shards 0 and 1``, ``shards 0 to 7``, ``shards 0, 2 and 5``, ``40 shards``; ``indexes`` in their order."""
    first, last = indexes[0], indexes[-1]
    if first == last:
        return f"shard {first}"
    if len(indexes) > 2 and last - first == len(indexes) - 1:
        return f"shards {first} to {last}"
    if len(indexes) > _MOST_SHARDS:
        return counted(len(indexes), "shard")
    return f"shards {', '.join(map(str, indexes[:-1]))} and {last}"
