"""The members by which a client marks positions for the upstream's prompt cache.

Law: a marker never counts as part of what a message says, because clients move them at each request.
"""

import msgspec

from proxy.wire.json.members import decode_items, read_members

CACHE_MARKERS = ("cache_control", "prompt_cache_breakpoint")
"""Members of a message or a part that ask for a prompt cache up to this position: Anthropic's and OpenAI's.

A client moves them to the end of its transcript at each request. So they do not count as part of a message's text.
"""


def find_markers(item: bytes) -> dict[str, msgspec.Raw]:
    """The cache markers among the members of a part or a message."""
    if item[:1] != b"{" or not any(name.encode() in item for name in CACHE_MARKERS):
        return {}
    members = read_members(item)
    return {name: members[name] for name in CACHE_MARKERS if name in members}


def find_markers_within(raw: bytes) -> dict[str, msgspec.Raw]:
    """The cache markers of a message and of its parts; the last one of each name."""
    if not any(name.encode() in raw for name in CACHE_MARKERS):
        return {}
    content = bytes(read_members(raw).get("content", b""))
    parts = map(bytes, decode_items(content)) if content[:1] == b"[" else ()
    return {name: marker for item in (raw, *parts) for name, marker in find_markers(item).items()}


def unmark(part: bytes) -> bytes:
    """A content part without cache markers; its own bytes if it has none."""
    if not find_markers(part):
        return part
    members = read_members(part)
    return msgspec.json.encode({name: value for name, value in members.items() if name not in CACHE_MARKERS})


def mark(part: bytes, markers: dict[str, msgspec.Raw]) -> bytes:
    """The part with these cache markers added; a marker that it already has stays."""
    members = read_members(part)
    missing = {name: marker for name, marker in markers.items() if name not in members}
    return msgspec.json.encode(members | missing) if missing else part
