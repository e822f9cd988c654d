"""JSON with less around its values: no white space between them, arrays of like objects as tables.

Law: a text's own characters stay within its strings, numbers and keys; nothing is decoded and written again. What is
not JSON to the letter (JSON5, Python's literals, a lone surrogate) stays as it is; so do JSON lines, which are compact
already.
"""

import msgspec

from rules.results.tidy.json_tables import make_tables

MIN_JSON_CHARS = 64
MAX_JSON_CHARS = 524_288
"""A longer text stays as it is: it would not fit any usual budget, and its check holds the interpreter too long."""
MAX_DEPTH = 64
"""Deeper nesting is not taken for JSON: the same everywhere, however much of the stack is in use."""
_DELETE_BLANKS = str.maketrans("", "", " \t\r\n")
_ONLY_BRACKETS = str.maketrans("", "", '",:0123456789+-.eEtrufalsn')
_RAW = msgspec.json.Decoder(msgspec.Raw)


def shorten_json(text: str, *, spaces: bool, tables: bool) -> str | None:
    """A JSON object or array in the shortest form among those allowed; None if it has that form, or is no JSON.

    White space around it stays. A text with a table is re-spaced, too.
    """
    if not (spaces or tables) or not MIN_JSON_CHARS <= len(text) <= MAX_JSON_CHARS:
        return None
    body = text.strip()
    if body[:1] + body[-1:] not in {"{}", "[]"}:
        return None
    compact = respace_json(body)
    if compact is None:
        return None
    short = make_tables(compact) if tables else compact
    if len(short) >= len(body) or (short == compact and not spaces):
        return None
    start = text.index(body[0])
    return text[:start] + short + text[start + len(body) :]


def respace_json(text: str) -> str | None:
    """A JSON text without the white space outside of its strings, every other character as it was.

    None if the text is not JSON to the letter (RFC 8259), or is deeper than MAX_DEPTH.
    """
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    # There is no control character in JSON: while the text is split at its quotes, they stand for escaped ones.
    escaped = "\\" in text
    if escaped:
        text = text.replace("\\\\", "\x00\x01").replace('\\"', "\x00\x02")
    parts = text.split('"')
    between = '"'.join(parts[::2]).translate(_DELETE_BLANKS)
    if not _is_shallow(between):
        return None
    parts[::2] = between.split('"')
    text = '"'.join(parts)
    return text.replace("\x00\x02", '\\"').replace("\x00\x01", "\\\\") if escaped else text


def _is_shallow(between: str) -> bool:
    """Whether the brackets nest no deeper than MAX_DEPTH. Each round takes the innermost away."""
    brackets = between.translate(_ONLY_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
        if not brackets:
            return True
    return False
