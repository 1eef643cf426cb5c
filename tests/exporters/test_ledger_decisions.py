"""What was exported where: a table of histories, and the file behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from exporters.base import ExportResult
from exporters.ledger import ExportEvent, Ledger, Standing, encode, parse_events, pending, read_events, standing


def event(what: str, place: str = "/out", digest: str = "d1") -> ExportEvent:
    return ExportEvent(schema_version=1, at="t", event=what, exporter="atif", destination=place, projection_sha256=digest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], Standing.NEVER, id="nothing"),
        pytest.param([event("started")], Standing.INTERRUPTED, id="killed-in-between"),
        pytest.param([event("started"), event("succeeded")], Standing.SUCCEEDED, id="done"),
        pytest.param([event("started"), event("failed")], Standing.FAILED, id="failed"),
        pytest.param([event("started"), event("failed"), event("started")], Standing.INTERRUPTED, id="retried-and-killed"),
        pytest.param([event("started", digest="d0"), event("succeeded", digest="d0")], Standing.NEVER, id="older-projection"),
        pytest.param([event("started", "/x"), event("succeeded", "/x")], Standing.NEVER, id="elsewhere"),
    ],
)
def test_the_newest_event_of_this_projection_at_this_place_decides(events: list[ExportEvent], expected: Standing) -> None:
    assert standing(events, "/out", "d1") is expected


def test_whatever_has_not_succeeded_is_pending() -> None:
    events = [event("started", "/a"), event("succeeded", "/a"), event("started", "/b"), event("failed", "/c")]

    assert pending(events, {"one": "/a", "two": "/b", "three": "/c", "four": "/d"}, "d1") == {
        "two": "/b", "three": "/c", "four": "/d",
    }  # fmt: skip


def test_a_line_is_golden() -> None:
    assert encode(event("started")) == (
        b'{"schema_version":1,"at":"t","event":"started","exporter":"atif","destination":"/out","projection_sha256":"d1"}\n'
    )


def test_a_torn_last_line_is_not_history_and_is_cut_before_the_next(tmp_path: Path) -> None:
    artifacts = RunArtifacts(tmp_path / "r.jsonl")
    whole = encode(event("started"))
    artifacts.exports.write_bytes(whole + whole[:30])
    assert read_events(artifacts.exports) == [event("started")]

    Ledger(artifacts, "atif", "/out", "d1").end(ExportResult.failed("disk full"))

    found = read_events(artifacts.exports)
    assert [entry.event for entry in found] == ["started", "failed"]
    assert found[1].reason == "disk full"


@pytest.mark.parametrize("line", [b"junk\n", b"{}\n", encode(event("started")).replace(b":1,", b":2,", 1)], ids=repr)
def test_any_other_line_is_named(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(CorruptArtifactError, match=r"r_exports.jsonl:2: not an export event"):
        parse_events(encode(event("started")) + line, tmp_path / "r_exports.jsonl")
