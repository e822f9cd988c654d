"""Recognises responses that refuse a prompt for its length, and reads their numbers.

It distinguishes errors that say "this does not fit the context window" from all others, and checks whether the text of
such a refusal also appears in its request: a client could have planted it there.

Law: no I/O, never raises, linear in the length of the text and of the body. The wording of a server is a row with a
sample in overflow.txt, never a branch in code; only that table says what a wording means and where its numbers are. A
rate limit is not an overflow, because waiting helps. A body that cannot be read as text counts as quoted. Texts are
compared by letters and digits only, so escapes, spaces and punctuation that a server adds or drops hide no quote.
"""

import html
import re
import sys
import unicodedata
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from trimtab.proxy.wire.json import try_decode
from trimtab.rules.text.late import compile_late

NUMBER = r"\d{1,20}+(?:[,_]\d{3}(?!\d)|){0,6}+"  # Matches a whole number, which may have thousands separators
_PARTS = {
    "ASKER": "(?:prompt|input|request|messages?|conversation|sequence)",
    "WINDOW": "context[ _](?:length|size|window|limit)",
    "OUTPUT": "(?:max_(?:completion_|output_|new_)?tokens|(?:output|completion|response|new)[ _]tokens?"
    "|(?:output|completion|response|generation) length|tokens to generate)",
    "BEYOND": r"(?:too (?:large|high|many|long)|exceed|\b(?:above|over|(?:more|greater|larger|higher) than)\b)",
    "MAX_TOKENS": "max_(?:completion_|output_)?tokens",
    "IS": r"(?: (?:is|of|only|at|to|be|currently|allowed|limited|set)){0,4}\s{0,2}[:=(\[]?\s{0,2}",
    "RATE": r"(?:per (?:minute|min|hour|day|month|second)\b|\b[TR]P[MD]\b)",
}
_ROW = re.compile(r"^(\S[^:\n]*): (.*)\n((?:    .*\n)+)", re.MULTILINE)


class Kind(StrEnum):
    PROMPT = "prompt"
    GENERATION = "generation"  # the completion, while it was being generated
    STRING = "string"  # one string of the request
    COMPLETION = "completion"  # the completion that was requested
    SIZE = "size"  # the body in bytes, or the request for a rate limit


class Wording(NamedTuple):
    """A row of the table. The named groups of `pattern` are numbers, by their meaning."""

    section: str
    server: str
    sample: str
    pattern: re.Pattern[str]

    @property
    def kind(self) -> Kind | None:
        return Kind(self.section) if self.section in set(Kind) else None


def _read_table() -> Iterator[Wording]:
    table = Path(__file__).with_suffix(".txt").read_text("utf-8")
    for section in table.split("\n[")[1:]:
        title, _, rows = section.partition("]\n")
        for server, sample, words in _ROW.findall(rows + "\n"):
            yield Wording(title, server, sample, _compile_words(words))


def _compile_words(words: str) -> re.Pattern[str]:
    pattern = "|".join(line[4:] for line in words.splitlines())
    pattern = re.sub("<([A-Z_]+)>", lambda part: _PARTS[part[1]], pattern)
    # A match must not be part of 300K or 1.5, which are not whole numbers; what is larger than a number is no limit.
    pattern = pattern.replace("<limit>", r"<limit>(?! {0,3}> {0,3}\d)")
    pattern = re.sub(r"(?<!\?P)<([a-z]+)>", lambda name: rf"(?P<{name[1]}>{NUMBER})(?!\.\d| ?[km]\b)", pattern)
    return compile_late(pattern, re.IGNORECASE)


_ROWS = tuple(_read_table())
_NO_MEANINGS = {"figures", "code", "beside a completion"}
MEANINGS = tuple(row for row in _ROWS if row.section not in _NO_MEANINGS)
"""Rows that say what a text is about; the first that matches decides."""
FIGURES = tuple(row for row in _ROWS if row.section == "figures")
"""Rows that say where the numbers of a text are. For each meaning the first match counts; MEANINGS come first."""
RATE, CODE, BESIDE = (
    next(row for row in _ROWS if row.section == section) for section in ("rate limit", "code", "beside a completion")
)

MAX_NUMBER = 10**12  # A larger number is ignored. Chosen: above every limit in tokens or bytes, below timestamps.
MAX_QUOTIENT = 10_000  # Of two numbers, for a limit. Chosen: beyond it they measure different things.
MIN_NUMBER = 256  # Smaller numbers are not compared. Chosen: no context window is smaller.
_COUNTED = re.compile(rf"({NUMBER})(?!\.\d| ?[km]\b) ?tokens?\b", re.IGNORECASE)
_ANY = re.compile(rf"(?<![\w.-])({NUMBER})(?! ?[km]\b|[\w-]|\.\d)", re.IGNORECASE)


class Numbers(NamedTuple):
    """The numbers that a text contains, as in `Overflow`; None for those that it does not contain."""

    limit: int | None
    requested: int | None  # prompt and completion together if both are given; else the total, or the prompt alone
    prompt_tokens: int | None
    completion_tokens: int | None
    excess_tokens: int | None


def read_numbers(text: str) -> Numbers:
    told: dict[str, int] = {}
    for wording in (*MEANINGS, *FIGURES):
        match = wording.pattern.search(text) if wording.pattern.groups else None
        for meaning, digits in match.groupdict().items() if match else ():
            if digits is not None and read_number(digits) < MAX_NUMBER:
                told.setdefault(meaning, read_number(digits))
    limit, prompt = told.get("limit") or None, told.get("prompt")  # a limit of 0 is not a limit
    total, completion, excess = told.get("total"), told.get("completion"), told.get("excess")
    if total is None and prompt is not None:
        total = prompt + (completion or 0)
    elif total is not None and completion is not None and completion < total:
        prompt = total - completion
    if excess is None and (limit is None or limit == total):
        limit, total = _compare(text) or (limit, total)
    return Numbers(limit, total, prompt, completion, excess)


def _compare(text: str) -> tuple[int, int] | None:
    """The smaller (the limit) and the larger, if exactly two numbers are of tokens, or two in all; None if unclear."""
    for pattern in (_COUNTED, _ANY):
        found = {read_number(match[1]) for match in pattern.finditer(text)}
        numbers = sorted(number for number in found if MIN_NUMBER <= number < MAX_NUMBER)
        if len(numbers) == 2 and numbers[1] < MAX_QUOTIENT * numbers[0]:
            return numbers[0], numbers[1]
    return None


def read_number(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))


REFUSAL_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses of overflow errors. Source: the responses of about twenty servers. llama.cpp sends 500 if its context window
fills up while it generates."""
TOO_LARGE = 413  # Source: RFC 9110 section 15.5.14
MAX_LAYERS = 3  # Levels of nested error objects that are read. Chosen: gateways wrap an error once or twice.
MAX_TEXT_CHARS = 2000  # Part of an error's text that is read. Chosen: the server's own words come first.
MIN_STRING_CHARS = 100_000
"""A smaller limit on the length of a string is about a name, not about a message's text. Chosen: far above names, far
below OpenAI's limit of 1,048,576 for texts."""


class Overflow(msgspec.Struct, frozen=True):
    """An overflow as the upstream reports it. A number is None if the upstream does not report it.

    limit, requested: in `unit`, which is tokens, characters or bytes. `requested` is prompt and completion together if
    the server adds them.
    prompt_tokens, completion_tokens: the parts of `requested`.
    is_flat: the body has no `error` object, so clients would not see its message.
    is_coded: a code of the server says that this is an overflow, so the words of its text prove nothing more.
    """

    kind: Kind
    text: str = ""
    limit: int | None = None
    requested: int | None = None
    unit: str = "tokens"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    excess_tokens: int | None = None
    is_flat: bool = False
    is_coded: bool = False


_NOT_OUTWEIGHED = frozenset({Kind.STRING, Kind.COMPLETION, Kind.GENERATION})
"""Kinds that a text names more exactly than an error code does; the code does not override them."""
_CHARACTERS = re.compile(r"\d characters", re.IGNORECASE)
_QUOTED = re.compile(r"""['"]?\binput(?:_value)?['"]?\s{0,3}[:=]\s{0,3}['"{\[]""")
"""Where a validator begins to quote the request. The text after it is the client's, not the server's."""
QUOTED_CHARS = 32  # Of a text, so many more are searched for `_QUOTED`. Chosen: above what it matches.


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """What a response, or event, says about exceeding the window; status 200 may hold it, too."""
    if status != 200 and status not in REFUSAL_STATUSES:
        return None
    answer = try_decode(body)
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if status == 200:  # with an error, not a completion
        is_error = isinstance(answer, dict) and any(map(answer.get, (*_WRAPPERS, "message")))
        return _read_refusal(400, answer) if is_error else None
    if not body.strip():
        return Overflow(Kind.SIZE) if status in {400, TOO_LARGE} else None
    members = answer if isinstance(answer, dict) else {"error": body.decode("utf-8", "replace")}
    return _read_refusal(status, members)


_WRAPPERS = ("error", "detail", "errors", "response", "base_resp")
"""Members that hold an error. Source of the last one: MiniMax, with status 200, too."""


def _read_refusal(status: int, answer: dict[str, Any]) -> Overflow | None:
    members = _unwrap(answer)
    begun = [text[: MAX_TEXT_CHARS + QUOTED_CHARS] for text in _find_texts(answer, members)]
    # Once each: the texts of an answer without an inner object are found twice.
    texts = [*dict.fromkeys(_QUOTED.split(text, maxsplit=1)[0][:MAX_TEXT_CHARS] for text in begun)]
    named = [members.get("code"), members.get("type"), answer.get("error_type")]
    has_code = any(isinstance(name, str) and CODE.pattern.search(name) for name in named)
    found = next(filter(None, (_read_text(status, text, has_code=has_code) for text in texts or [""])), None)
    if found is None and status == TOO_LARGE and not any(map(RATE.pattern.search, texts)):
        found = Overflow(Kind.SIZE, texts[0] if texts else "")
    if found is None:
        return None
    limit, requested = members.get("n_ctx"), members.get("n_prompt_tokens")
    if _is_number(limit) and _is_number(requested):
        found = replace(found, limit=limit, requested=requested, prompt_tokens=requested)
    return replace(found, is_flat="error" not in answer, is_coded=has_code)


def _unwrap(answer: dict[str, Any]) -> dict[str, Any]:
    members = answer
    for _ in range(MAX_LAYERS):
        inner = next((members[key] for key in _WRAPPERS if members.get(key)), None)
        inner = inner[0] if isinstance(inner, list) else inner
        if not isinstance(inner, dict):
            break
        members = inner
    return members


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < MAX_NUMBER  # not isinstance: true and false are ints in Python


def _read_text(status: int, text: str, *, has_code: bool) -> Overflow | None:
    """The overflow that one text describes. `has_code`: the error has the code of an overflow."""
    kind = _classify(text, has_code=has_code)
    if kind is None:
        return None
    numbers = read_numbers(text)
    if kind is Kind.COMPLETION or _CHARACTERS.search(text):
        numbers = numbers._replace(requested=None, prompt_tokens=None)
    found = Overflow(kind, text, **numbers._asdict())
    if kind is Kind.STRING:
        is_text = (numbers.limit or 0) >= MIN_STRING_CHARS
        return replace(found, requested=None, unit="characters") if is_text else None
    if kind is Kind.SIZE:  # a limit in bytes; or a request larger than a whole rate limit, for which no waiting helps
        if not RATE.pattern.search(text):
            return replace(found, unit="bytes")
        return found if found.limit and (found.requested or 0) > found.limit else None
    if status == 500 and kind is not Kind.GENERATION and not has_code and numbers.limit is None:
        return None  # an internal error of the server, whose text only sounds like an overflow
    return found


def _classify(text: str, *, has_code: bool) -> Kind | None:
    matching = (row.kind for row in MEANINGS if row.pattern.search(text))
    kind = next((kind for kind in matching if kind is not Kind.COMPLETION or not BESIDE.pattern.search(text)), None)
    return Kind.PROMPT if has_code and kind not in _NOT_OUTWEIGHED else kind


def _find_texts(answer: dict[str, Any], members: dict[str, Any]) -> Iterator[str]:
    metadata = members.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: the text of the provider
    keys = ("message", "msg", "error", "detail", "status_msg")
    for told in (raw, *(each.get(key) for each in (members, answer) for key in keys)):
        text = told[0] if isinstance(told, list) and told else told
        if isinstance(text, str) and text:
            yield text


WORD_CHARS = 12  # Letters and digits before a number that are compared. Chosen: enough to tell texts apart.
PIECE_CHARS = 256 * 1024  # A body is searched in pieces. Chosen: so no step holds the interpreter for long.
OVERLAP_CHARS = 4096  # Overlap of two pieces. Chosen: longer than any text that is searched for, however it is escaped.

_ESCAPE = re.compile(
    r"\\+(?:u(?P<code>[0-9a-fA-F]{4})|U00(?P<long>[0-9a-fA-F]{6})|x(?P<byte>[0-9a-fA-F]{2})|[nrtbfav0\"'/\\]|(?=\W|$))"
)
"""An escape as JSON, Python, Go and JavaScript write it; several backslashes if it is escaped repeatedly."""
_NO_WORD = re.compile(r"[\W_]+")
_DIGITS = re.compile(NUMBER)
_RUN = re.compile(r"\d+")


class Quoted(IntEnum):
    NOTHING = 0
    NUMBER = 1  # The request contains a number that the refusal gives. What is learned from it is only a guess.
    WORDS = 2  # The request contains the text of the refusal, or cannot be read. Nothing is learned.


def find_quotes(overflow: Overflow, body: bytes) -> Quoted:
    """How much of a refusal appears in the request's body, however either of them is escaped or spaced."""
    try:
        text = body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return Quoted.WORDS
    # The refusal with its escapes undone, also those of HTML and of URLs.
    rendered = {_unescape(each) for each in (overflow.text, html.unescape(overflow.text), unquote(overflow.text))}
    words = {needle for rendering in rendered for needle in _find_words(overflow, rendering)}
    numbers = _list_numbers(overflow)
    found = Quoted.NOTHING
    for start in range(0, max(len(text), 1), PIECE_CHARS):
        plain = _unescape(text[max(start - OVERLAP_CHARS, 0) : start + PIECE_CHARS])
        letters = _letters(plain)
        if any(needle in letters for needle in words):
            return Quoted.WORDS
        if numbers and found is Quoted.NOTHING and _holds_number(plain, numbers, overflow.text):
            found = Quoted.NUMBER
    return found


def _find_words(overflow: Overflow, text: str) -> Iterator[str]:
    """What to search for: the used numbers, each with the text before it; else the words that told, if no code did."""
    used = set(_list_numbers(overflow))
    is_told = False
    for match in _DIGITS.finditer(text):
        if read_number(match[0]) in used:
            before = _letters(text[: match.start()])[-WORD_CHARS:]
            is_told = True
            if before:
                yield before + _letters(match[0])
    if not is_told and not overflow.is_coded:  # no client can plant a code, which is apart from the text
        for wording in MEANINGS:
            found = wording.pattern.search(text) if wording.kind is Kind.PROMPT else None
            if found is not None and _letters(found[0]):
                yield _letters(found[0])


def _list_numbers(overflow: Overflow) -> list[int]:
    told = (overflow.limit, overflow.requested, overflow.prompt_tokens, overflow.excess_tokens)
    return [number for number in told if number is not None]


def _holds_number(plain: str, numbers: list[int], refusal: str) -> bool:
    """Whether a text has one of the numbers; one that the refusal's end may have cut off may go on there."""
    runs = {
        int(unicodedata.normalize("NFKC", run)[:20]) for run in _RUN.findall(plain.replace(",", "").replace("_", ""))
    }
    if not runs.isdisjoint(numbers):
        return True
    last = _RUN.search(refusal.rstrip(" .…'\"")[::-1])
    cut = last[0][::-1] if last is not None and last.start() == 0 else ""
    return bool(cut) and int(cut) in numbers and any(str(run).startswith(cut) for run in runs)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    # Two escapes may form one character (a surrogate pair), for example a digit of another script.
    return _ESCAPE.sub(_read_escape, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_escape(escape: re.Match[str]) -> str:
    code = escape["code"] or escape["long"] or escape["byte"]
    number = int(code, 16) if code else 0x20
    return chr(number) if number <= sys.maxunicode else " "


def _letters(text: str) -> str:
    """Only letters and digits, in lower case and in Unicode's compatibility form (NFKC)."""
    return _NO_WORD.sub("", unicodedata.normalize("NFKC", text).casefold())
