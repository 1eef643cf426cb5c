"""How help and errors say what may stand for RUN; apart from what finds it, since a command's help does without that."""

from __future__ import annotations

from typing import Final

#: For commands that read results.
RUN_WORDS: Final = "a run's name or its beginning, NAME/BENCHMARK, its directory, a benchmark's, or a rollouts file"
#: For commands that are about jobs, and can be about those of one benchmark.
SUBMITTED_WORDS: Final = "a submitted run's name or its beginning, NAME/BENCHMARK, or its directory or a benchmark's"
#: For commands that work on all of a run.
WHOLE_WORDS: Final = "a submitted run's name or its beginning, or its directory"
