"""How long the decision what to resume takes: a shard of N recorded rollouts, written in the product's own format."""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import tempfile
import time
import zlib
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.formats import events
from collector.formats.events import Dispatched, SessionStarted, Success
from collector.formats.manifest import Manifest, digest_of
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from collector.state.retry import pending

_RUN = "0" * 32
_AT = "2026-01-01T00:00:00.000+00:00"


def write_shard(artifacts: RunArtifacts, expected: int, recorded: int) -> None:
    """A shard whose first ``recorded`` rollouts are measured; the rows are short, since a resume does not read them."""
    digest = hashlib.sha256()
    with artifacts.inventory.open("wb") as inventory:
        for n in range(expected):
            line = b'{"responses_create_params":{"input":"%d + 1?"},"_ng_task_index":%d,"_ng_rollout_index":0}\n' % (
                n,
                n,
            )
            digest.update(line)
            inventory.write(line)
    with artifacts.journal.open("wb") as journal, artifacts.rollouts.open("wb") as main:
        common = {"run_id": _RUN, "session": 0, "at": _AT}
        journal.write(events.encode(SessionStarted(**common, seq=0, reason="fresh", host="h", pid=1)))
        offset, run = 0, _RUN.encode()
        for n in range(recorded):
            row = b'{"_ng_task_index":%d,"_ng_rollout_index":0,"reward":1,"_ng_run_id":"%s","_ng_session":0}\n' % (
                n,
                run,
            )
            dispatched = Dispatched(**common, seq=2 * n + 1, rollout_id=f"{n}-0", attempt_index=0)
            done = Success(
                **common, seq=2 * n + 2, rollout_id=f"{n}-0", attempt_index=0, offset=offset, length=len(row),
                checksum=zlib.crc32(row), reward=1, elapsed_s=1.25,
            )  # fmt: skip
            journal.write(events.encode(dispatched) + events.encode(done))
            main.write(row)
            offset += len(row)
    artifacts.failures.touch()
    manifest = Manifest(
        run_id=_RUN, benchmark="bench", created_at=_AT, expected=expected, source_digest="",
        inventory_digest=digest.hexdigest(), config_digest=digest_of({}), config={},
    )  # fmt: skip
    artifacts.manifest.write_bytes(manifest.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="a directory to use instead of a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        artifacts = RunArtifacts((args.keep or Path(temporary)) / "rollouts.jsonl")
        if not artifacts.manifest.exists():
            write_shard(artifacts, args.rollouts + 100, args.rollouts)
        begun, cpu = time.perf_counter(), time.process_time()
        with RolloutStore.read(artifacts) as store:
            left = len(pending(store.history, RetrySettings()))
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{args.rollouts} recorded, {left} to do: {wall:.2f} s wall, {cpu:.2f} s CPU, peak {peak:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
