"""Shorter JSON: no white space between values, and arrays of objects with equal keys as tables.

Law: strings, numbers and keys keep their own characters; no value is decoded and written again. A text that is not
strictly JSON (JSON5, Python literals, a lone surrogate) stays unchanged. So do JSON lines, which are compact already.
"""

import msgspec

from rules.results.tidy.json_tables import make_tables

MIN_JSON_CHARS = 64  # chosen: a shorter text has almost nothing to save
MAX_JSON_CHARS = 524_288
"""A longer text stays unchanged. Chosen: it would not fit any usual budget, and checking it holds the interpreter too
long."""
MAX_DEPTH = 64
"""A text nested deeper is not treated as JSON. Chosen: far below the decoder's own limit, which depends on the stack in
use, so that the outcome is the same everywhere."""
_ENDS = frozenset({"{}", "[]"})
_ONLY_BRACKETS = str.maketrans("", "", ",:0123456789+-.eEtrufalsn")
_RAW = msgspec.json.Decoder(msgspec.Raw)


def shorten_json(text: str, *, spaces: bool, tables: bool) -> str | None:
    """A JSON object or array in the shortest form that is allowed; None if that is not shorter, or if it is not JSON.

    spaces: white space between values may be removed; that around the whole text stays.
    tables: arrays of objects may become tables. A text that gets a table also loses its white space.
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
    """Whether a text may be a JSON object or array, judged by its length and its two ends alone."""
    if not MIN_JSON_CHARS <= len(text) <= MAX_JSON_CHARS:
        return False
    body = text.strip()
    return body[:1] + body[-1:] in _ENDS


def respace_json(text: str) -> str | None:
    """A JSON text without the white space outside its strings; every other character stays.

    None if the text is not strictly JSON (RFC 8259), or is nested deeper than MAX_DEPTH.
    """
    try:
        _RAW.decode(text)
        compact = msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return compact if _is_shallow(compact) else None


def _is_shallow(compact: str) -> bool:
    """Whether the brackets of a JSON text without blanks nest no deeper than MAX_DEPTH."""
    # An upper bound of the depth: a bracket that opens right after `},` or `],` adds no level. In strings, these pairs
    # cancel out, and other brackets only raise the bound.
    opening = compact.count("[") + compact.count("{")
    if opening - compact.count("},{") - compact.count("],[") <= MAX_DEPTH:
        return True
    # JSON has no unescaped control characters. So \x00 can stand for escaped backslashes and quotes while the text is
    # split at its quotes; every other piece is outside of strings.
    brackets = "".join(compact.replace("\\\\", "\x00").replace('\\"', "\x00").split('"')[::2]).translate(_ONLY_BRACKETS)
    # Each round removes the innermost level.
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
        if not brackets:
            return True
    return False
