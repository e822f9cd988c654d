"""Counts the parts of a message that are not text (images, audio, files, documents), and writes a removed image's line.

Law: never raises. A part of an unexpected form is counted by its JSON. The line depends only on the part and on the
text right before it. Text that a client chose enters it only as a file name of letters, digits, `.`, `-` and `_`, so it
can say hardly more than that an image was there.
"""

import binascii
import re
from base64 import b64decode
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from trimtab.proxy.wire.content.schemas import decode_or_none, write_compact
from trimtab.proxy.wire.json.decode import DECODE_ERRORS, decode_member
from trimtab.rules.conversation import CountTokens
from trimtab.rules.text.markers import mark_image
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.media import MAX_GUESS_TOKENS, UNSEEN_IMAGE, Piece, Size, guess_file, read_size
from trimtab.rules.tokens.tool_schemas import as_schema

HEAD_CHARS = 64
"""Base64 characters of an image that are read first for its size. Chosen: enough for PNG, GIF and WebP."""
JPEG_HEAD_CHARS = 256 * 1024
"""Base64 characters of a JPEG that are searched for its size, which comes after its metadata. Chosen: room for three
segments of metadata of the largest size (64 KiB)."""
FILE_HEAD_CHARS = 128 * 1024
"""Base64 characters of a file's beginning, and of its end, that are read. Chosen: lists of pages and headers of movies
are there; decoding them takes less than a millisecond."""
PAYLOAD_CHARS = 1024
"""A string of this length that looks like base64 is taken for a file. Chosen: longer than ids, hashes and keys."""
_SAMPLE_CHARS = 512  # chosen: no sentence is as long without a blank
_FILES = frozenset({"file", "input_file", "document"})
_BASE64 = re.compile(r"[A-Za-z0-9+/_=\s-]*")
_NAMED = ("audio", "video", "file", "document")


class PartCost(NamedTuple):
    """Tokens of a part, and those of them that are a low guess."""

    tokens: int
    guessed: int = 0


def guess(tokens: int) -> PartCost:
    return PartCost(tokens, tokens)


def count_part(raw: bytes, count: CountTokens, costs: Costs) -> PartCost:
    """Tokens of a content part that is not text: images by their size, audio, videos and files by a guess."""
    part = as_schema(decode_or_none(msgspec.Raw(raw)))
    kind = part.get("type")
    if not isinstance(kind, str):
        return count_json(raw, part, count)
    if "image" in kind:
        return _count_image(part, costs)
    inner, source = as_schema(part.get(kind)) or part, as_schema(part.get("source"))
    urls = [value for key, value in part.items() if key.endswith("_url")]
    found = (inner.get("file_data"), source.get("data"), inner.get("data"), inner.get("url"), *urls)
    data = next((one for one in found if isinstance(one, str)), None)
    if kind in _FILES or (data is not None and any(name in kind for name in _NAMED)):
        hint = next((one for one in (source.get("media_type"), inner.get("format")) if isinstance(one, str)), "")
        return guess(guess_data(data, f"{hint} {kind}"))
    return count_json(raw, part, count)


def guess_data(data: str | None, hint: str = "") -> int:
    """A low guess for a file by its base64 text or its data URL; None, and any other URL, if it is not here."""
    start = 0
    if data is not None and data.startswith("data:"):
        start = data.find(",", 0, PAYLOAD_CHARS) + 1
        hint = f"{data[5:start]} {hint}"
    elif data is not None and "://" in data[:PAYLOAD_CHARS]:
        data = None
    if not data or start == len(data):
        return guess_file(None)
    tail = max(start + (len(data) - start - FILE_HEAD_CHARS) // 4 * 4, start + FILE_HEAD_CHARS)
    head = _decode(data[start : start + FILE_HEAD_CHARS])
    return guess_file(Piece(head, _decode(data[tail:]), len(data) - start), hint)


def _decode(data: str) -> bytes:
    try:
        return b64decode(data + "=" * (-len(data) % 4))
    except (binascii.Error, ValueError):
        return b""


def count_json(raw: bytes, value: Any, count: CountTokens) -> PartCost:
    """Tokens of a part of an unknown type: its JSON, and a guess for the files in it."""
    if len(raw) > PAYLOAD_CHARS:
        with suppress(RecursionError):
            rest, guessed = take_payloads(value)
            if guessed:
                return PartCost(count(write_compact(rest)) + guessed, guessed)
    return PartCost(count(raw.decode("utf-8", "replace")))


def take_payloads(value: Any) -> tuple[Any, int]:
    """A value without the files that are in it, and a guess for them: a video may be sent as its pictures.

    Raises RecursionError.
    """
    rest, guessed = _take_payloads(value)
    return rest, min(guessed, MAX_GUESS_TOKENS)


def _take_payloads(value: Any) -> tuple[Any, int]:
    if isinstance(value, str) and is_payload(value):
        return "", guess_data(value)
    if isinstance(value, list):
        parts = [_take_payloads(item) for item in value]
        return [part for part, _ in parts], sum(guessed for _, guessed in parts)
    if isinstance(value, dict):
        members = {key: _take_payloads(item) for key, item in value.items()}
        left = {key: part for key, (part, _) in members.items()}
        return left, sum(guessed for _, guessed in members.values())
    return value, 0


def is_payload(text: str) -> bool:
    """Whether a string looks like base64 wherever it is sampled, or is a data URL."""
    if len(text) < PAYLOAD_CHARS:
        return False
    at = text.find(",", 0, _SAMPLE_CHARS) + 1 if text.startswith("data:") else 0
    step = max((len(text) - at) // 8, 1)
    places = (*range(at, len(text) - _SAMPLE_CHARS, step), len(text) - _SAMPLE_CHARS)
    samples = [text[place : place + _SAMPLE_CHARS] for place in places]
    return all(_BASE64.fullmatch(sample) and len(sample.split()) < len(sample) // 32 for sample in samples)


def _count_image(part: Any, costs: Costs) -> PartCost:
    """Tokens of an image by its size; a guess if its bytes are not in the request."""
    image = part.get("image_url")
    inner = as_schema(image) or {"url": image}
    detail = inner.get("detail") or part.get("detail")
    address, data = inner.get("url"), as_schema(part.get("source")).get("data")
    if isinstance(address, str) and address.startswith("data:"):
        data = address[address.find(",") + 1 : address.find(",") + 1 + JPEG_HEAD_CHARS]
    size = read_image_size(data) if isinstance(data, str) else None
    tokens = costs.images.count(size or UNSEEN_IMAGE, low_detail=detail == "low")
    return PartCost(tokens) if size else guess(tokens)


def read_image_size(data: str) -> Size | None:
    try:
        size = read_size(b64decode(data[:HEAD_CHARS]))
        return size or read_size(b64decode(data[: min(len(data), JPEG_HEAD_CHARS) // 4 * 4]))
    except (binascii.Error, ValueError):
        return None


MAX_NAME_CHARS = 64
"""Longest file name in the line. Chosen: longer than usual names, too short for a message."""
NAMED_WITHIN_CHARS = 256
"""End of the text before an image that is searched for a file name. Chosen: clients name it right before the image."""
_NAME_KEYS = ("filename", "file_name", "name", "title")
_TYPE = re.compile(r"image/[a-z0-9.+-]{1,40}", re.IGNORECASE)
_FILE = re.compile(r"[\w.-]{1,64}\.(?:png|jpe?g|gif|webp|bmp|tiff?|avif|heic|svg)\b", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.-]+")


def write_line(raw: bytes, before: str) -> str:
    """The line for a content part that is an image; empty for any other part. `before` is the text before the part."""
    if b"image" not in raw:
        return ""
    try:
        part = as_schema(decode_member(msgspec.Raw(raw)))
    except DECODE_ERRORS:
        return ""
    kind = part.get("type")
    if not isinstance(kind, str) or "image" not in kind:
        return ""
    inner = as_schema(part.get("image_url")) or {"url": part.get("image_url")}
    source = as_schema(part.get("source"))
    address = next((one for one in (inner.get("url"), source.get("url")) if isinstance(one, str)), "")
    data, head = source.get("data"), source.get("media_type")
    if address.startswith("data:"):
        head, _, data = address.partition(",")
    size = read_image_size(data) if isinstance(data, str) else None
    facts = [
        _read_type(head) + (f" {size.width}x{size.height}" if size else ""),
        _write_bytes(len(data) * 3 // 4) if isinstance(data, str) else "",
        _find_name((part, inner, source), address, before),
    ]
    return mark_image(*filter(None, facts))


def _read_type(head: Any) -> str:
    found = _TYPE.search(head[:MAX_NAME_CHARS]) if isinstance(head, str) else None
    return found[0].lower() if found else "image"


def _write_bytes(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{round(size / 1000)} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _find_name(objects: tuple[dict[str, Any], ...], address: str, before: str) -> str:
    """The file name: from a member of the part, else from the image's URL, else the last one in the text before it."""
    named = (each.get(key) for each in objects for key in _NAME_KEYS)
    name: str = next((one for one in named if isinstance(one, str) and one), "")
    if not name and not address.startswith("data:"):
        path = re.split(r"[?#]", address, maxsplit=1)[0].partition("://")[2]
        name = path.rpartition("/")[2] if "/" in path else ""
    if not name:
        name = next(reversed(_FILE.findall(before[-NAMED_WITHIN_CHARS:])), "")
    return _UNSAFE.sub("_", re.split(r"[/\\]", name)[-1][:MAX_NAME_CHARS])
