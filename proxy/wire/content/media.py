"""Counts the parts of a message that are not text: images, audio, files, documents.

Law: never raises. A part of an unexpected form is counted by its JSON.
"""

import binascii
from base64 import b64decode
from typing import Any

import msgspec

from proxy.wire.content.schemas import decode_or_none
from rules.conversation import CountTokens
from rules.tokens.families import Costs
from rules.tokens.images import Size, read_size
from rules.tokens.messages import count_audio, count_file
from rules.tokens.tool_schemas import as_schema

HEAD_CHARS = 64
"""Base64 characters of an image that are read first for its size. Chosen: enough for PNG, GIF and WebP."""
JPEG_HEAD_CHARS = 256 * 1024
"""Base64 characters of a JPEG that are searched for its size, which comes after its metadata. Chosen: room for three
segments of metadata of the largest size (64 KiB)."""
_WAVES = ("wav", "pcm16")
_TEXTS = ("data:text/", "data:application/json")
_FILES = frozenset({"file", "input_file", "document"})


def count_part(raw: bytes, count: CountTokens, costs: Costs) -> int:
    """Tokens of a content part that is not text: images by their size, audio and files by an upper bound."""
    part = as_schema(decode_or_none(msgspec.Raw(raw)))
    kind = part.get("type")
    if not isinstance(kind, str):
        return count(raw.decode("utf-8", "replace"))
    if "image" in kind:
        return _count_image(part, costs)
    inner = as_schema(part.get(kind)) or part
    if "audio" in kind and isinstance(inner.get("data"), str):
        return count_audio(len(inner["data"]), is_wave=inner.get("format") in _WAVES)
    if kind in _FILES:
        data = inner.get("file_data") or as_schema(part.get("source")).get("data")
        text = data if isinstance(data, str) else ""
        return count_file(len(text) or None, is_text=text.startswith(_TEXTS))
    url = inner.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        return count_file(len(url))
    return count(raw.decode("utf-8", "replace"))


def _count_image(part: Any, costs: Costs) -> int:
    """Tokens of an image by its size; the most that an image can cost if its bytes are not in the request."""
    image = part.get("image_url")
    inner = as_schema(image) or {"url": image}
    detail = inner.get("detail") or part.get("detail")
    address, data = inner.get("url"), as_schema(part.get("source")).get("data")
    if isinstance(address, str) and address.startswith("data:"):
        data = address[address.find(",") + 1 : address.find(",") + 1 + JPEG_HEAD_CHARS]
    return costs.images.count(read_image_size(data) if isinstance(data, str) else None, low_detail=detail == "low")


def read_image_size(data: str) -> Size | None:
    """The size of an image, read from its base64; None if its first bytes do not contain it."""
    try:
        size = read_size(b64decode(data[:HEAD_CHARS]))
        return size or read_size(b64decode(data[: min(len(data), JPEG_HEAD_CHARS) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None
