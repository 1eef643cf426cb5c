"""Images and sound: placed when the row tells where they are and what they are, named as omitted otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from exporters.atif.documents import Document, SchemaVersion
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Context
from exporters.registry import make_exporter
from tests.exporters.made_runs import merged_run

SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}}
QUESTION = {"type": "input_text", "text": "what is it?"}


def user_step(part: object, version: SchemaVersion) -> dict[str, Any]:
    source = {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "responses_create_params": {"input": [{"role": "user", "content": [QUESTION, part]}]},
        "response": {"output": []},
    }
    context = Context(session_id="s", agent_name="a", agent_version="1", exporter_version="0", schema_version=version)
    document = LossyProfile().convert(source, context)
    assert document.schema_version == version
    data = document.encode()
    Document.parse(data)
    return orjson.loads(data)["steps"][0]


@pytest.mark.parametrize(
    ("part", "media_type", "path"),
    [
        ({"type": "input_image", "image_url": "data:image/PNG;base64,xx"}, "image/png", "data:image/PNG;base64,xx"),
        ({"type": "input_image", "image_url": "https://x/a.b/c.JPG?d=e.f"}, "image/jpeg", "https://x/a.b/c.JPG?d=e.f"),
        ({"type": "image_url", "image_url": {"url": "pictures/cat.webp"}}, "image/webp", "pictures/cat.webp"),
    ],
)
@pytest.mark.parametrize("version", ["1.7", "1.8"])
def test_an_image_with_an_address_and_a_type_is_a_part(part: object, media_type: str, path: str, version: str) -> None:
    step = user_step(part, "ATIF-v1.8" if version == "1.8" else "ATIF-v1.7")

    assert step["message"] == [
        {"type": "text", "text": "what is it?"},
        {"type": "image", "source": {"media_type": media_type, "path": path}},
    ]
    assert "extra" not in step


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "https://x/picture"},
        {"type": "input_image", "image_url": "https://x/picture.svg"},
        {"type": "input_image", "image_url": "data:image/svg+xml;base64,xx"},
        {"type": "input_image", "image_url": "http://[broken/a.png"},
        {"type": "input_image", "image_url": None, "file_id": "f"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "xx", "format": "midi"}},
        {"type": "input_audio", "input_audio": {"data": "xx"}},
        {"type": "input_audio", "input_audio": "xx"},
    ],
)
def test_a_medium_without_a_known_address_or_type_is_named_as_omitted(part: dict[str, Any]) -> None:
    step = user_step(part, "ATIF-v1.8")

    assert step["message"] == "what is it?"
    assert step["extra"]["gym_eval"]["omitted"] == [part["type"]]


@pytest.mark.parametrize(("name", "media_type"), [("wav", "wav"), ("mp3", "mpeg"), ("audio/x-m4a", "mp4"), ("FLAC", "flac")])
def test_sound_is_a_part_in_1_8_with_its_registered_type(name: str, media_type: str) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": name}}

    source = user_step(part, "ATIF-v1.8")["message"][1]["source"]

    assert source == {"media_type": f"audio/{media_type}", "path": f"data:audio/{media_type};base64,UklGRg=="}


def test_sound_has_no_place_in_1_7() -> None:
    step = user_step(SOUND, "ATIF-v1.7")

    assert step["message"] == "what is it?"
    assert step["extra"]["gym_eval"]["omitted"] == ["input_audio"]


def test_a_1_7_document_with_sound_is_refused() -> None:
    document = {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "a", "version": "1"},
        "steps": [
            {
                "step_id": 1,
                "source": "user",
                "message": [{"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}}],
            }
        ],
    }

    with pytest.raises(ValueError, match=r"sound, which ATIF-v1\.7 does not know"):
        Document.parse(orjson.dumps(document))


def test_a_medium_in_the_answer_and_in_a_tool_result_is_kept_there() -> None:
    picture = {"type": "input_image", "image_url": "https://x/a.png"}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = [call, {"type": "function_call_output", "call_id": "c", "output": [picture]}]
    source = {"_ng_task_index": 0, "_ng_rollout_index": 0, "response": {"output": output}}
    context = Context(session_id="s", agent_name="a", agent_version="1", exporter_version="0")

    step = LossyProfile().convert(source, context).steps[0]

    assert step.observation is not None
    content = step.observation.results[0].content
    assert isinstance(content, tuple)
    assert msgspec.to_builtins(content[0]) == {
        "type": "image",
        "source": {"media_type": "image/png", "path": "https://x/a.png"},
    }


def test_the_version_is_a_setting_of_the_exporter(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path)
    folder = tmp_path / "atif"
    values = {"agent_version": "1", "schema_version": "1.8", "output_dirpath": folder}

    result = make_exporter("atif", values, artifacts).export(artifacts)

    assert result.is_success, result.message
    versions = {orjson.loads(path.read_bytes())["schema_version"] for path in folder.glob("*.json")}
    assert versions == {"ATIF-v1.8"}
