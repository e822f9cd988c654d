"""Writes the content of an edited message.

Law: a part whose text did not change keeps its bytes. No cache marker is lost.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import orjson

from proxy.wire.content.cache_markers import find_markers, find_markers_within, mark
from proxy.wire.content.read import TEXT_PARTS, read_text
from proxy.wire.json.members import decode_items, decode_members
from rules.conversation import Media, Message


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
    """A text part with another text; its other members keep their bytes."""
    members = decode_members(part)
    members["text"] = msgspec.Raw(orjson.dumps(text))
    return msgspec.json.encode(members)
