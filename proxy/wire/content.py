"""Reads, counts and writes the content of a message: its texts, and its parts that are not text.

Law: each part is either a text or a `Media`; none is lost. In an edited message, a part whose text did not change and
an id that says the same keep their bytes, and no cache marker is lost.

Counting never raises: a part of an unexpected form is counted by its JSON. The line that stands for a removed image
depends only on the part and on the text right before it. Text that a client chose enters it only as a file name of
letters, digits, `.`, `-` and `_`, so it can say hardly more than that an image was there.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import orjson

from trimtab.proxy.wire.cache_help import find_markers, find_markers_within, mark, unmark
from trimtab.proxy.wire.json import (
    DECODE_ERRORS,
    decode_any,
    decode_items,
    decode_member,
    decode_members,
    decode_or_none,
    read_id,
    write_compact,
)
from trimtab.rules.conversation import CountTokens, Media, Message, ToolCall
from trimtab.rules.text.markers import mark_image
from trimtab.rules.tokens.families import Costs
from trimtab.rules.tokens.media import MAX_GUESS_TOKENS, UNSEEN_IMAGE, Piece, Size, guess_file, read_size
from trimtab.rules.tokens.messages import as_schema

TOLERATED_BYTES = 32  # An uncounted member up to this size is ignored. Chosen: it can be null, empty, or a number.
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})  # Types of parts that hold a text in their member `text`
SEALED_CHARS_PER_TOKEN = 6  # Base64 of encrypted text. Chosen: about four characters a token, 5.3 in base64.
NO_PARTS: Mapping[str, AbstractSet[str]] = {}


def begins(value: msgspec.Raw, sign: bytes) -> bool:
    """Whether a value begins with this byte; the value is not copied."""
    return memoryview(value)[:1] == sign


def read_content(content: msgspec.Raw | None) -> tuple[tuple[str, ...], tuple[tuple[bytes, str], ...]]:
    """Texts and other parts of a content, in wire order; each other part with the text before it.

    The content is a string, null, or an array of parts; any other value is one part. Raises one of DECODE_ERRORS.
    """
    if content is None:
        return (), ()
    sign = bytes(memoryview(content)[:1])  # so that a long text is not copied
    if sign == b"[":
        texts: list[str] = []
        media: list[tuple[bytes, str]] = []
        for part in map(bytes, decode_items(content)):
            text = read_text(part)
            if text is None:
                media.append((part, texts[-1] if texts else ""))
            else:
                texts.append(text)
        return tuple(texts), tuple(media)
    if sign == b'"':
        return (msgspec.json.decode(content),), ()
    encoded = bytes(content)
    return (), () if encoded == b"null" else ((encoded, ""),)


def has_uncounted(
    members: Mapping[str, msgspec.Raw], counted: AbstractSet[str], parts: Mapping[str, AbstractSet[str]] = NO_PARTS
) -> bool:
    """Whether a server may render members that are not counted. Raises one of DECODE_ERRORS.

    parts: members with lists, and which members of their items are counted.
    """
    for name in members.keys() - counted:
        if len(bytes(members[name])) > TOLERATED_BYTES:
            return True
    for name, counted_of_part in parts.items():
        if name not in members or bytes(memoryview(members[name])[:1]) != b"[":  # a long text is not copied
            continue
        for item in map(bytes, decode_items(members[name])):
            if item[:1] == b"{" and has_uncounted(decode_members(item), counted_of_part):
                return True
    return False


def read_media(part: bytes, before: str, count: CountTokens, costs: Costs) -> Media:
    """A part that is not text, with its token count and the line that may replace it. `before`: the text before it."""
    unmarked = unmark(part)
    line = write_line(unmarked, before)
    cost = count_part(unmarked, count, costs)
    return Media(part, cost.tokens, line, count(line) if line else 0, guessed_tokens=cost.guessed)


def read_text(part: bytes, types: AbstractSet[str] = TEXT_PARTS) -> str | None:
    if part[:1] != b"{":
        return None
    members = decode_members(part)
    text, kind = decode_member(members.get("text")), decode_member(members.get("type"))
    return text if isinstance(text, str) and isinstance(kind, str) and kind in types else None


def write_canonical(part: bytes) -> bytes:
    """A content part without what may vary between requests: key order, white space, cache markers."""
    return msgspec.json.encode(decode_any(unmark(part)), order="deterministic")


def write_content(message: Message, content: msgspec.Raw | None, text_type: str = "text") -> bytes:
    """The content of an edited message, in the client's form, a string or parts; with cache markers always parts.

    text_type: the `type` of a text part that is added. Only a part can hold a cache marker.
    """
    markers = {name: marker for raw in message.taken_in for name, marker in find_markers_within(raw).items()}
    encoded = b"null" if content is None else bytes(content)
    if encoded[:1] != b"[" and not message.media:
        text = "\n\n".join(message.texts)
        return b"[" + mark(_write_text(text, text_type), markers) + b"]" if markers else orjson.dumps(text)
    parts = list(map(bytes, decode_items(encoded))) if encoded[:1] == b"[" else []
    return b"[" + b",".join(_write_parts(message, parts, markers, text_type)) + b"]"


def _write_parts(
    message: Message, parts: Sequence[bytes], markers: dict[str, msgspec.Raw], text_type: str
) -> list[bytes]:
    """The client's parts with new texts, then more parts; the last gets `markers` and those of removed parts."""
    texts = iter(message.texts)
    # The line that replaces a removed image keeps the cache markers.
    media = (
        mark(_write_text(part.line, text_type), find_markers(part.raw)) if part.is_removed else part.raw
        for part in message.media
    )
    written: list[bytes] = []
    left: dict[str, msgspec.Raw] = {}
    for part in parts:
        old = read_text(part)
        new = next(media, None) if old is None else next(texts, None)
        if isinstance(new, bytes):
            written.append(new)
        elif new is not None:
            written.append(part if new == old else replace_text(part, new))
        else:
            left |= find_markers(part)
    written += [_write_text(text, text_type) for text in texts]
    written += media
    left |= markers
    if left and written and written[-1][:1] == b"{":
        written[-1] = mark(written[-1], left)
    return written


def _write_text(text: str, text_type: str) -> bytes:
    return orjson.dumps({"type": text_type, "text": text})


def replace_texts(content: bytes, texts: Iterator[str], types: AbstractSet[str] = TEXT_PARTS) -> bytes:
    """A content with new texts, one for each in it, in parts of these types. All else keeps its bytes."""
    if content[:1] == b'"':
        new = next(texts)
        return content if msgspec.json.decode(content) == new else orjson.dumps(new)

    def change(part: bytes) -> bytes:
        old = read_text(part, types)
        return part if old is None or (new := next(texts)) == old else replace_text(part, new)

    return replace_items(content, change) if content[:1] == b"[" else content


def replace_items(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A JSON array with its items as `change` makes them. All else keeps its bytes. Raises one of DECODE_ERRORS."""
    pieces: list[bytes] = []
    done = 0
    for item in map(bytes, decode_items(content)):
        at = content.index(item, done)
        pieces += (content[done:at], change(item))
        done = at + len(item)
    return b"".join((*pieces, content[done:]))


def replace_text(part: bytes, text: str) -> bytes:
    members = decode_members(part)
    members["text"] = msgspec.Raw(orjson.dumps(text))
    return msgspec.json.encode(members)


def write_arguments(call: ToolCall, old: msgspec.Raw) -> msgspec.Raw:
    """A call's arguments as the client wrote them: as a string, or as JSON."""
    return msgspec.Raw(orjson.dumps(call.arguments) if begins(old, b'"') else call.arguments.encode())


def write_answered(message: Message) -> msgspec.Raw:
    return msgspec.Raw(message.answers_json or orjson.dumps(message.answers or ""))


def rename(message: Message, members: dict[str, msgspec.Raw], key: str) -> None:
    """Change the id in the members of an edited result, if a rule has found that it answers another call."""
    if message.answers and read_id(decode_or_none(members.get(key))) not in {"", message.answers}:
        members[key] = write_answered(message)


HEAD_CHARS = 64  # Base64 characters of an image that are read first for its size. Chosen: enough for PNG, GIF and WebP.
JPEG_HEAD_CHARS = 256 * 1024
"""Base64, searched for the size, behind the metadata. Chosen: room for three segments of the largest size (64 KiB)."""
FILE_HEAD_CHARS = 128 * 1024
"""Base64 of both ends. Chosen: lists of pages and headers of movies are there; decoding takes below a millisecond."""
PAYLOAD_CHARS = 1024  # Such a long string like base64 is taken for a file. Chosen: longer than ids, hashes and keys.
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
    """A value without the files in it (a video may be its pictures), and a guess for them. Raises RecursionError."""
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
    inner = as_schema(part.get("image_url")) or {"url": part.get("image_url")}
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


MAX_NAME_CHARS = 64  # Longest file name in the line. Chosen: longer than usual names, too short for a message.
NAMED_WITHIN_CHARS = 256  # End of the text before an image that is searched for a name. Chosen: clients name it there.
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
    found = _TYPE.search(head[:MAX_NAME_CHARS]) if isinstance(head, str) else None
    facts = [
        (found[0].lower() if found else "image") + (f" {size.width}x{size.height}" if size else ""),
        _write_bytes(len(data) * 3 // 4) if isinstance(data, str) else "",
        _find_name((part, inner, source), address, before),
    ]
    return mark_image(*filter(None, facts))


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
