"""JSON with less around its values: blanks between them gone, like objects as tables.

Law: a text's own characters stay within its strings, numbers and keys; nothing is decoded and written again. What is
not JSON to the letter (JSON5, Python's literals, a lone surrogate) is left alone; so are JSON lines, which are compact
already and are looked for line by line.
"""

import re
from collections.abc import Container
from dataclasses import dataclass

import msgspec

from rules.results.tidy.json_tables import make_tables
from rules.text.chunks import PIECE_CHARS

MIN_JSON_CHARS = 64
MAX_JSON_CHARS = 524_288
"""A longer one is left as it came: it would not fit any usual budget, and its check holds the interpreter too long."""
WRAPPER_CHARS = 512
"""What a tool may write before and behind a JSON body: a status, a tag, a prompt."""
MAX_TRIES = 3
MAX_DEPTH = 64
"""Nested deeper, it is not taken for JSON: the same everywhere, however much of the stack is in use."""
_BLANKS = " \t\r\n"
_OPENING = re.compile(r"(?:\A\s*+|^)([{\[])(?=[ \t\r\n]*+[\"{\[\]}\d\-tfn])", re.MULTILINE)
_CLOSING = re.compile(r"[}\]](?=[ \t\r]*+$)", re.MULTILINE)
_DELETE_BLANKS = str.maketrans("", "", _BLANKS)
_ONLY_BRACKETS = str.maketrans("", "", '",:0123456789+-.eEtrufalsn')
_RAW = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class Body:
    """The JSON body of a text: where it stands, and how it reads without the blanks outside of its strings."""

    start: int
    stop: int
    compact: str | None
    """None where it is not to be written anew: too long, or written already."""


def find_json(text: str, written: Container[str] = ()) -> Body | None:
    """The one JSON object or array that a text consists of, but for a few lines before and behind, if it does.

    A body among `written` is known to be JSON in its last form. Of one over MAX_JSON_CHARS only the beginning is read.
    """
    head = text[:WRAPPER_CHARS]
    if not ("\n{" in head or "\n[" in head or head.lstrip().startswith(("{", "["))):
        return None
    openings = list(_OPENING.finditer(text, 0, min(len(text), WRAPPER_CHARS)))[:MAX_TRIES]
    if not openings:
        return None
    closings = list(_CLOSING.finditer(text, max(len(text) - WRAPPER_CHARS, 0)))[::-1][:MAX_TRIES]
    for opening in openings:
        start = opening.start(1)
        for closing in closings:
            stop = closing.end()
            if stop - start < MIN_JSON_CHARS or (text[start] == "{") != (text[stop - 1] == "}"):
                continue
            body = _read_body(text, start, stop, written)
            if body:
                return body
    return None


def _read_body(text: str, start: int, stop: int, written: Container[str]) -> Body | None:
    if stop - start > MAX_JSON_CHARS:
        return Body(start, stop, None) if _begins_json(text[start : start + PIECE_CHARS]) else None
    body = text[start:stop]
    if body in written:
        return Body(start, stop, None)
    compact = respace_json(body)
    return None if compact is None else Body(start, stop, compact)


def _begins_json(piece: str) -> bool:
    try:
        _RAW.decode(piece)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (UnicodeEncodeError, RecursionError):
        pass
    return False


def shorten_json(body: Body, *, spaces: bool, tables: bool) -> str | None:
    """The shortest form of the body among those allowed; None where it has that form already.

    A body with a table is re-spaced, too.
    """
    if body.compact is None or not (spaces or tables):
        return None
    short = make_tables(body.compact) if tables else body.compact
    if len(short) >= body.stop - body.start or (short == body.compact and not spaces):
        return None
    return short


def respace_json(text: str) -> str | None:
    """A JSON text without the blanks outside of its strings, every other character as it was.

    None where the text is not JSON to the letter (RFC 8259), or is deeper than MAX_DEPTH.
    """
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    # No control character stands in JSON: while it is split at its quotes, they stand for escaped ones.
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
