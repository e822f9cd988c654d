"""Reads and writes the content of a message: its texts, and its parts that are not text.

Law: each part is either a text or a `Media`; none is lost. In an edited message, a part whose text did not change and
an id that says the same keep their bytes, and no cache marker is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import orjson

from trimtab.proxy.wire.content.cache_help import find_markers, find_markers_within, mark, unmark
from trimtab.proxy.wire.content.media import count_part, write_line
from trimtab.proxy.wire.content.schemas import decode_or_none
from trimtab.proxy.wire.json.decode import decode_any, decode_items, decode_member, decode_members, read_id
from trimtab.rules.conversation import CountTokens, Media, Message, ToolCall
from trimtab.rules.tokens.families import Costs

TOLERATED_BYTES = 32
"""A member up to this size that is not counted is ignored. Chosen: it can be null, empty, or a number."""
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
"""Types of parts that hold a text in their member `text`."""
NO_PARTS: Mapping[str, AbstractSet[str]] = {}


def begins(value: msgspec.Raw, sign: bytes) -> bool:
    """Whether a value begins with this byte; the value is not copied."""
    return memoryview(value)[:1] == sign


def read_content(content: msgspec.Raw | None) -> tuple[tuple[str, ...], tuple[tuple[bytes, str], ...]]:
    """Texts and other parts of a message's content, each in wire order; each other part with the text before it.

    The content is a string, null, or an array of parts; any other value is one part. Raises one of DECODE_ERRORS.
    """
    if content is None:
        return (), ()
    if begins(content, b"["):
        texts: list[str] = []
        media: list[tuple[bytes, str]] = []
        for part in map(bytes, decode_items(content)):
            text = read_text(part)
            if text is None:
                media.append((part, texts[-1] if texts else ""))
            else:
                texts.append(text)
        return tuple(texts), tuple(media)
    if begins(content, b'"'):
        return (msgspec.json.decode(content),), ()
    encoded = bytes(content)
    return (), () if encoded == b"null" else ((encoded, ""),)


def has_uncounted(
    members: Mapping[str, msgspec.Raw], counted: AbstractSet[str], parts: Mapping[str, AbstractSet[str]] = NO_PARTS
) -> bool:
    """Whether an object has members that are not counted but that a server may render.

    parts: members with lists, and which members of their items are counted. Raises one of DECODE_ERRORS.
    """
    if any(len(bytes(members[name])) > TOLERATED_BYTES for name in members.keys() - counted):
        return True
    for name, counted_of_part in parts.items():
        listed = bytes(members.get(name, b""))
        items = map(bytes, decode_items(listed)) if listed[:1] == b"[" else ()
        if any(item[:1] == b"{" and has_uncounted(decode_members(item), counted_of_part) for item in items):
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
    """The content of an edited message, in the form that the client chose in `content`: a string, or parts.

    text_type: the `type` of a text part that is added. Only a part can hold a cache marker. So if there are markers, a
    string becomes one part.
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
    """The client's parts with each old text replaced by the new one; additional parts come last.

    The last part gets `markers` and the cache markers of removed parts.
    """
    texts = iter(message.texts)
    media = (_write_media(part, text_type) for part in message.media)
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


def _write_media(part: Media, text_type: str) -> bytes:
    """A part that is not text. The line that replaces a removed image keeps the cache markers."""
    return mark(_write_text(part.line, text_type), find_markers(part.raw)) if part.is_removed else part.raw


def _write_text(text: str, text_type: str) -> bytes:
    return orjson.dumps({"type": text_type, "text": text})


def replace_texts(content: bytes, texts: Iterator[str], types: AbstractSet[str] = TEXT_PARTS) -> bytes:
    """A content with new texts, one for each text in it. All else keeps its bytes, as do texts that are equal.

    types: the types of the parts whose texts are replaced.
    """
    if content[:1] == b'"':
        new = next(texts)
        return content if msgspec.json.decode(content) == new else orjson.dumps(new)
    pieces: list[bytes] = []
    done = 0
    for part in map(bytes, decode_items(content)) if content[:1] == b"[" else ():
        old = read_text(part, types)
        if old is None or (new := next(texts)) == old:
            continue
        at = content.index(part, done)
        pieces += (content[done:at], replace_text(part, new))
        done = at + len(part)
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
