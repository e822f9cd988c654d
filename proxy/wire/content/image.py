"""Writes the line that replaces a removed image.

Law: never raises, and depends only on the part and on the text right before it. Text that a client chose enters only as
a file name of letters, digits, `.`, `-` and `_`, so the line can say hardly more than that an image was there.
"""

import re
from typing import Any

import msgspec

from proxy.wire.content.media import read_image_size
from proxy.wire.json.repair import DECODE_ERRORS, decode_member
from rules.text.markers import mark_image
from rules.tokens.tool_schemas import as_schema

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
