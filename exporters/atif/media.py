"""Images and sound of the Responses API as parts of an ATIF message: those whose address and type the row tells. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from exporters.atif.documents import AudioPart, AudioSource, ImagePart, ImageSource

#: Endings of addresses, and the names that producers use for a registered type (``audio/mp3`` is not registered).
_IMAGES: Final = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".gif": "image/gif", ".webp": "image/webp"}
_AUDIO: Final = {
    "wav": "audio/wav",
    "x-wav": "audio/wav",
    "wave": "audio/wav",
    "mp3": "audio/mpeg",
    "mpga": "audio/mpeg",
    "m4a": "audio/mp4",
    "x-m4a": "audio/mp4",
    "opus": "audio/ogg",
    "x-aac": "audio/aac",
    "x-flac": "audio/flac",
    "x-aiff": "audio/aiff",
}
_DATA_URL: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+)[;,]", re.IGNORECASE)


def media_part(part: Any) -> ImagePart | AudioPart | None:
    """``part`` as an image or sound, or None when it is neither, or its address or its type is not told.

    A part with its bytes inside (``data:`` address, base64 of ``input_audio``) keeps them, as a ``data:`` address.
    """
    if not isinstance(part, Mapping):
        return None
    try:
        match part.get("type"):
            case "input_image" | "image_url":
                return _image(_address(part.get("image_url")))
            case "input_audio":
                return _audio(part.get("input_audio"))
            case _:
                return None
    except ValueError:
        # A type outside the format, or something that is no address: the part is named with those that have no place.
        return None


def _address(value: Any) -> Any:
    """Chat completions wrap the address in an object, the Responses API does not."""
    return value.get("url") if isinstance(value, Mapping) else value


def _image(address: Any) -> ImagePart | None:
    if not isinstance(address, str):
        return None
    inside = _DATA_URL.match(address)
    kind = inside[1].lower() if inside else _IMAGES.get(PurePosixPath(urlsplit(address).path).suffix.lower())
    return None if kind is None else ImagePart(source=msgspec.convert({"media_type": kind, "path": address}, ImageSource))


def _audio(value: Any) -> AudioPart | None:
    data, kind = (value.get("data"), value.get("format")) if isinstance(value, Mapping) else (None, None)
    if not isinstance(data, str) or not data or not isinstance(kind, str):
        return None
    name = kind.strip().lower().removeprefix("audio/")
    media_type = _AUDIO.get(name, f"audio/{name}")
    path = data if _DATA_URL.match(data) else f"data:{media_type};base64,{data}"
    return AudioPart(source=msgspec.convert({"media_type": media_type, "path": path}, AudioSource))
