"""JSON with less around its values: blanks between them gone, like objects as tables.

Law: a text's own characters stay within its strings, numbers and keys; nothing is decoded and written again. What is not
JSON to the letter (JSON5, Python's literals, a lone surrogate) is left alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rules.tidy_tables import make_tables

MIN_JSON_CHARS = 64
MAX_JSON_CHARS = 524_288
"""A longer one is left as it came: it would not fit any usual budget, and its check holds the interpreter too long."""
WRAPPER_CHARS = 512
"""What a tool may write before and behind a JSON body: a status, a tag, a prompt."""
MAX_TRIES = 3
MAX_DEPTH = 64
"""Nested deeper, it is not taken for JSON: the same everywhere, however much of the stack is in use."""
_BLANKS = " \t\r\n"
_OPENING = re.compile(r"^[ \t]*+([{\[])(?=[ \t\r\n]*+[\"{\[\]}\d\-tfn])", re.MULTILINE)
_CLOSING = re.compile(r"[}\]](?=[ \t\r]*+$)", re.MULTILINE)
_DELETE_BLANKS = str.maketrans("", "", _BLANKS)
_ONLY_BRACKETS = str.maketrans("", "", _BLANKS + ",:0123456789+-.eEtrufalsn")
_RAW = msgspec.json.Decoder(msgspec.Raw)

Fits = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Span:
    """Where a text's JSON body stands, and whether it may be written anew."""

    start: int
    stop: int
    checked: bool


def find_json(text: str) -> Span | None:
    """The one JSON object or array that the text consists of, but for a few lines before and behind; None if there is none."""
    openings = list(_OPENING.finditer(text, 0, min(len(text), WRAPPER_CHARS)))[:MAX_TRIES]
    if not openings:
        return None
    tail = max(len(text) - WRAPPER_CHARS, 0)
    closings = list(_CLOSING.finditer(text, tail))[::-1][:MAX_TRIES]
    for opening in openings:
        for closing in closings:
            span = _check(text, opening.start(1), closing.end())
            if span:
                return span
    return None


def _check(text: str, start: int, stop: int) -> Span | None:
    if stop - start < MIN_JSON_CHARS or (text[start] == "{") != (text[stop - 1] == "}"):
        return None
    if stop - start > MAX_JSON_CHARS:
        return Span(start, stop, checked=False)
    return Span(start, stop, checked=True) if is_json(text[start:stop]) else None


def is_json(text: str) -> bool:
    """Whether the text is JSON to the letter (RFC 8259) and no deeper than MAX_DEPTH."""
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return _is_shallow(text)


def _is_shallow(text: str) -> bool:
    """Whether the brackets of a JSON text nest no deeper than MAX_DEPTH. Each round takes the innermost away."""
    _, parts = _split_at_quotes(text)
    brackets = "".join(parts[::2]).translate(_ONLY_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
        if not brackets:
            return True
    return False


def shorten_json(text: str, span: Span, *, spaces: bool, tables: bool, fits: Fits) -> str:
    """The text with its JSON body in the shortest form of those allowed, if that fits; else the same text.

    `fits` is asked once at most. A text with a table is re-spaced, too.
    """
    if not span.checked or not (spaces or tables):
        return text
    body = text[span.start : span.stop]
    compact = respace_json(body)
    short = make_tables(compact) if tables else compact
    if short == compact and not spaces:
        return text
    if len(short) >= len(body):
        return text
    whole = text[: span.start] + short + text[span.stop :]
    return whole if fits(whole) else text


def respace_json(body: str) -> str:
    """A JSON text without the blanks outside of its strings; every other character as it was."""
    escaped, parts = _split_at_quotes(body)
    parts[::2] = '"'.join(parts[::2]).translate(_DELETE_BLANKS).split('"')
    body = '"'.join(parts)
    return body.replace("\x00\x02", '\\"').replace("\x00\x01", "\\\\") if escaped else body


def _split_at_quotes(body: str) -> tuple[bool, list[str]]:
    """What stands between the quotes of a JSON text, outside and inside of its strings by turns.

    Escapes of backslash and quote are told apart first; control characters, which JSON holds none of, stand for them.
    """
    escaped = "\\" in body
    if escaped:
        body = body.replace("\\\\", "\x00\x01").replace('\\"', "\x00\x02")
    return escaped, body.split('"')
