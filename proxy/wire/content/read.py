"""Reads the content of a message: its texts, and its parts that are not text.

Law: each part is either a text or a `Media`; none is lost.
"""

from collections.abc import Set as AbstractSet

import msgspec

from proxy.wire.content.cache_markers import unmark
from proxy.wire.content.image import write_line
from proxy.wire.content.media import count_part
from proxy.wire.json.members import decode_items, decode_members
from proxy.wire.json.repair import decode_any, decode_member
from rules.conversation import CountTokens, Media
from rules.tokens.families import Costs

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
"""Types of parts that hold a text in their member `text`."""


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


def read_media(part: bytes, before: str, count: CountTokens, costs: Costs) -> Media:
    """A part that is not text, with its token count and the line that may replace it. `before`: the text before it."""
    unmarked = unmark(part)
    line = write_line(unmarked, before)
    cost = count_part(unmarked, count, costs)
    return Media(part, cost.tokens, line, count(line) if line else 0, guessed_tokens=cost.guessed)


def read_text(part: bytes, types: AbstractSet[str] = TEXT_PARTS) -> str | None:
    """The text of a text part of one of these types; None for any other part."""
    if part[:1] != b"{":
        return None
    members = decode_members(part)
    text, kind = decode_member(members.get("text")), decode_member(members.get("type"))
    return text if isinstance(text, str) and isinstance(kind, str) and kind in types else None


def write_canonical(part: bytes) -> bytes:
    """A content part without what may vary between requests: key order, white space, cache markers."""
    return msgspec.json.encode(decode_any(unmark(part)), order="deterministic")
