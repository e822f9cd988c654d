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
_ENDS = frozenset({"{}", "[]"})
_ONLY_BRACKETS = str.maketrans("", "", ",:0123456789+-.eEtrufalsn")
_RAW = msgspec.json.Decoder(msgspec.Raw)


def shorten_json(text: str, *, spaces: bool, tables: bool) -> str | None:
    """A JSON object or array in the shortest form among those allowed; None if it has that form, or is no JSON.

    White space around it stays. A text with a table is re-spaced, too.
    """
    if not (spaces or tables) or not may_be_json(text):
        return None
    body = text.strip()
    compact = respace_json(body)
    if compact is None:
        return None
    short = make_tables(compact) if tables else compact
    if len(short) >= len(body) or (short == compact and not spaces):
        return None
    start = text.index(body[0])
    return text[:start] + short + text[start + len(body) :]


def may_be_json(text: str) -> bool:
    """Whether a text may be a JSON object or array, of a length that is looked at, by its ends alone."""
    if not MIN_JSON_CHARS <= len(text) <= MAX_JSON_CHARS:
        return False
    body = text.strip()
    return body[:1] + body[-1:] in _ENDS


def respace_json(text: str) -> str | None:
    """A JSON text without the white space outside of its strings, every other character as it was.

    None if the text is not JSON to the letter (RFC 8259), or is deeper than MAX_DEPTH.
    """
    try:
        _RAW.decode(text)
        compact = msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return compact if _is_shallow(compact) else None


def _is_shallow(compact: str) -> bool:
    """Whether the brackets of a JSON text without blanks nest no deeper than MAX_DEPTH."""
    # One that stands right behind another that closes takes its place. In a string neither counts, or both do.
    opening = compact.count("[") + compact.count("{")
    if opening - compact.count("},{") - compact.count("],[") <= MAX_DEPTH:
        return True
    # There is no control character in JSON: while the text is split at its quotes, they stand for escaped ones.
    brackets = "".join(compact.replace("\\\\", "\x00").replace('\\"', "\x00").split('"')[::2]).translate(_ONLY_BRACKETS)
    # Each round takes the innermost away.
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
        if not brackets:
            return True
    return False
