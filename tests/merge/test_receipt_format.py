"""The receipt's format 1, as a golden file and by what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.errors import CorruptArtifactError
from merge.publication.receipt import InputRecord, OutputRecord, Receipt, parse_receipt, read_receipt

RECEIPT = Receipt(
    partial=True,
    run_id="r1",
    benchmark="gpqa",
    agent="openai_chat",
    output=OutputRecord(path="rollouts.jsonl", rows=2, size_bytes=80, sha256="aa"),
    inputs=(InputRecord(path="shards/0-of-2/rollouts.jsonl", size_bytes=80, manifest_sha256="bb", state_sha256="cc"),),
    missing_shards=(1,),
    coverage_sha256="dd",
    aggregate_sha256="ee",
)
GOLDEN = b"""{
  "partial": true,
  "schema_version": 1,
  "run_id": "r1",
  "benchmark": "gpqa",
  "agent": "openai_chat",
  "output": {
    "path": "rollouts.jsonl",
    "rows": 2,
    "size_bytes": 80,
    "sha256": "aa"
  },
  "inputs": [
    {
      "path": "shards/0-of-2/rollouts.jsonl",
      "size_bytes": 80,
      "manifest_sha256": "bb",
      "state_sha256": "cc"
    }
  ],
  "missing_shards": [
    1
  ],
  "coverage_sha256": "dd",
  "aggregate_sha256": "ee"
}
"""


def test_the_file_is_golden() -> None:
    assert RECEIPT.encode() == GOLDEN


@pytest.mark.parametrize("partial", [True, False])
def test_what_is_written_is_read_back(partial: bool) -> None:
    receipt = RECEIPT.model_copy(update={"partial": partial})

    assert parse_receipt(receipt.encode(), Path("x")) == receipt


@pytest.mark.parametrize(
    ("data", "match"),
    [
        pytest.param(GOLDEN.replace(b'"schema_version": 1', b'"schema_version": 2'), "format 2 is not supported", id="newer"),
        pytest.param(GOLDEN.replace(b'"run_id"', b'"ran_id"'), "ran_id", id="unknown-key"),
        pytest.param(GOLDEN.replace(b'"rows": 2', b'"rows": -2'), "output.rows", id="impossible-count"),
        pytest.param(GOLDEN.replace(b'"path": "', b'"path": "\\ud800'), "a lone surrogate", id="half-a-character"),
        pytest.param(GOLDEN.replace(b'"path": "', b'"path": "\\u0000'), "inputs.0.path", id="no-path"),
        pytest.param(GOLDEN[:50], "not JSON", id="half-a-file"),
        pytest.param(b"[]", "format None is not supported", id="no-object"),
    ],
)
def test_anything_else_is_named(tmp_path: Path, data: bytes, match: str) -> None:
    path = tmp_path / "rollouts_merge.json"
    path.write_bytes(data)

    with pytest.raises(CorruptArtifactError, match=match) as caught:
        read_receipt(path)
    assert str(path) in str(caught.value)
