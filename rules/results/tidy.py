"""Rung 1: a tool result loses what carries no information: terminal output, white space and repeated keys of JSON.

Laws: it depends only on the result, its own call and the settings, never on its age or its position, so the forwarded
prefix does not change. Never longer than the input; idempotent; the same object if nothing changed.

Of JSON, strings, numbers and keys keep their own characters; no value is decoded and written again. A text that is not
strictly JSON (JSON5, Python literals, a lone surrogate) stays unchanged. So do JSON lines, which are compact already.
Arrays of objects with equal keys become tables: `[{"a":1,"b":2},...]` becomes `{"[trimtab: table]
columns":["a","b"],"rows":[[1,2],...]}`. A table is JSON and keeps the text of every value. Writing the columns before
the values of each row gives the original text again. A text that contains the marker itself never gets a table, so no
table is ambiguous.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import msgspec

from trimtab.rules.conversation import CountTokens, Telling
from trimtab.rules.policy import Budget, Tidying
from trimtab.rules.results.calls import reads_json_file
from trimtab.rules.results.work import Editor, Result
from trimtab.rules.text.head_tail import PIECE_CHARS, cut_lines, cut_pieces, holds, measure_bytes
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import TABLE

# Source: ECMA-48 (control functions), xterm's ctlseqs (OSC ended by BEL), OSC 8 hyperlinks as cargo and gcc write them.
_ESCAPE = compile_late(
    r"\x1b(?:"
    r"\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC: titles, hyperlinks
    r"|[PX^_][^\x07\x1b\n]*+\x1b\\"  # DCS, SOS, PM, APC
    r"|[!-/]++[0-~]| [FGLMN]"  # character sets
    r"|[=>78cM]"
    r")?"
)
_REPAINT = compile_late(r"\x1b\[[01]?G")  # Moves to the start of the line, like a carriage return
_ERASED = "\r \r"  # Replaces a sequence that erases the line: the same as overwriting the line with blanks
_HUNK = "@@ -"
MAX_STATE_CHARS = 1024  # Longest state of a progress line. Chosen: wider than any terminal.
MANY_FORMS = 2
"""Forms of progress that are distinguished in one line. Two are enough: the only question is whether there is more than
one."""
_WORD = compile_late(r"(?<![^\W\d_])(?!(?i:eta)\b)[^\W\d_]{3,}+")
_STEP = compile_late(
    r"\d ?%"
    r"|\d ?[kKMGT]?(?:i?B)? ?/ ?\d[\d.,]*+ ?(?:[kKMGT]?i?B|bytes|files|objects|packages|items|layers)\b"
    r"|[\[(]\d++/\d++[\])]"
    r"|\d ?(?:[kKMGT]?i?B|it)/s\b|\ds/it\b"
    r"|--:--|\b(?i:eta)\b"
    r"|\[(?=[^\]]{4})[=#>*.]*+[ .\-]*+\]|(?<![=#])[=#]{3,}+>|[\u2580-\u259f]"
    r"|[\u25d0-\u25d5\u2800-\u28ff](?:\s|$)"
)
"""Signs of progress: a percentage, n/m with its unit or in brackets, a rate, an ETA, a bar, a spinner. A time or a
fraction alone is not enough, as it occurs in any text."""
_ERRORS = (
    "error", "fail", "fatal", "exception", "traceback", "panic", "abort", "crash", "denied", "refused", "critical",
    "warn", "cannot", "unable", "invalid", "not found", "no such", "lost", "corrupt", "kill", "timed out", "timeout",
)  # fmt: skip


def strip_escapes(text: str, *, repaint: bool) -> str:
    """The text without ANSI, VT and OSC sequences, and without any escape character. Of a link, the text stays.

    With `repaint`, sequences that erase the line or move to its start become carriage returns, for `settle_progress`.
    """
    if not holds(text, "\x1b"):
        return text
    pieces: Iterable[str] = cut_pieces(text, before="\x1b", size=PIECE_CHARS // 4)
    if repaint:
        pieces = (_REPAINT.sub("\r", piece).replace("\x1b[2K", _ERASED) for piece in pieces)
        pieces = (piece.replace("\r\x1b[K", _ERASED).replace("\r\x1b[0K", _ERASED) for piece in pieces)
    return "".join([_ESCAPE.sub("", piece) for piece in pieces])


def settle_progress(text: str) -> str:
    r"""The text with only the last state of each progress line, which overwrote itself with carriage returns.

    A line is progress if all its states but the last show progress (a percentage, a bar, a rate, an ETA, n/m with a
    unit) and none of them mentions an error. Also, either all states have the same words before the sign of progress,
    or the line is erased in between. Any other line stays unchanged, as its carriage returns may be line ends. So does
    a text that contains a diff, as it may be a patch.
    """
    if not holds(text, "\r") or holds(text, _HUNK):
        return text
    lines = (piece.split("\n") if "\r" in piece else [piece] for piece in cut_lines(text))
    return "".join("\n".join(_settle_line(line) if "\r" in line else line for line in some) for some in lines)


def _settle_line(line: str) -> str:
    body = line.rstrip("\r")
    is_erased = any(map(str.isspace, _cut_states(body)))
    forms: set[tuple[str, ...]] = set()
    last = ""
    for state, last in pairwise(state for state in _cut_states(body) if any(map(str.isalnum, state))):
        form = _read_form(state)
        if form is not None and len(forms) < MANY_FORMS:
            forms.add(form)
        elif form is None and not last.startswith(state.rstrip()):  # a state that the next one repeats is not lost
            return line
    words = tuple(_WORD.findall(last[:MAX_STATE_CHARS]))
    is_one = is_erased or (len(forms) == 1 and all(words[: len(form)] == form for form in forms))
    return last + line[len(body) :] if forms and is_one else line


def _cut_states(body: str) -> Iterator[str]:
    """The states of a line, one at a time, because there may be millions."""
    return (state for piece in cut_lines(body, "\r") for state in piece.split("\r"))


def _read_form(state: str) -> tuple[str, ...] | None:
    """The words before the sign of progress, else the first one; None if the state is an error or shows no progress."""
    step = _STEP.search(state) if len(state) <= MAX_STATE_CHARS else None
    lowered = state[:MAX_STATE_CHARS].lower()
    if step is None or any(word in lowered for word in _ERRORS):
        return None
    return tuple(_WORD.findall(state, 0, step.start()) or _WORD.findall(state)[:1])


MIN_ROWS = 3  # chosen: two objects repeat each key only once, which hardly pays for the table's marker
MIN_SHARE_SAVED = 0.1  # Share of an array's characters that its table must save. Chosen: for less, it does not pay.
MAX_TABLE_DEPTH = 16  # Deepest nesting with tables. Chosen: each level reads its values once more.

_LIKELY = b'[{"'
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def make_tables(compact: str) -> str:
    """A JSON text without blanks, with tables for arrays of objects with equal keys, if these are shorter."""
    if TABLE in compact or compact.count("},{") < MIN_ROWS - 1:
        return compact
    return _tabulate(compact.encode(), 0).decode()


def _tabulate(value: bytes, depth: int) -> bytes:
    if depth > MAX_TABLE_DEPTH or _LIKELY not in value:
        return value
    if value.startswith(b"{"):
        return _tabulate_object(value, depth)
    try:
        objects = _OBJECTS.decode(value)
    except msgspec.ValidationError:
        return _tabulate_items(value, depth)
    keys = list(objects[0])
    names = [msgspec.json.encode(key) for key in keys]
    if len(objects) < MIN_ROWS or not keys or any(list(item) != keys for item in objects):
        return _tabulate_items(value, depth)
    rows = [tuple(map(bytes, item.values())) for item in objects]
    if _write_objects(names, rows) != value:
        return value  # a key is escaped or occurs twice in an object: the original could not be written again
    plain = value
    if value.count(_LIKELY) > 1:
        rows = [tuple(_tabulate(cell, depth + 1) if _LIKELY in cell else cell for cell in row) for row in rows]
        plain = _write_objects(names, rows)
    cells = b"],[".join(map(b",".join, rows))
    table = b'{"%b columns":[%b],"rows":[[%b]]}' % (TABLE.encode(), b",".join(names), cells)
    return table if len(table) <= len(plain) * (1 - MIN_SHARE_SAVED) else plain


def _tabulate_items(value: bytes, depth: int) -> bytes:
    items = map(bytes, _ARRAY.decode(value))
    return b"[" + b",".join([_tabulate(item, depth + 1) if _LIKELY in item else item for item in items]) + b"]"


def _tabulate_object(value: bytes, depth: int) -> bytes:
    fields = [(msgspec.json.encode(key), bytes(field)) for key, field in _OBJECT.decode(value).items()]
    if b"{" + b",".join([name + b":" + field for name, field in fields]) + b"}" != value:
        return value
    return b"{" + b",".join([name + b":" + _tabulate(field, depth + 1) for name, field in fields]) + b"}"


def _write_objects(names: list[bytes], rows: list[tuple[bytes, ...]]) -> bytes:
    form = b",".join(name.replace(b"%", b"%%") + b":%b" for name in names)
    return b"[{" + b"},{".join(map(form.__mod__, rows)) + b"}]"


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


def tidy_text(text: str, tidying: Tidying, *, is_file: Callable[[], bool], fits: Callable[[str], bool]) -> str:
    """Remove from a text what the switches of `tidying` say. Returns the same object if there is nothing to remove.

    is_file: whether the text is a file that was read. Its JSON stays unchanged, as the agent may copy it into an exact
        edit. Called at most once.
    fits: whether a text is within its budget. JSON is shortened only if the short form fits. Otherwise it is truncated,
        and a reader must be able to find the excerpt again in the original. Called at most once.

    If only white space would be left, the text stays unchanged, because some upstreams refuse an empty text.
    """
    tidied, is_short = text, len(text) <= PIECE_CHARS  # a short text is searched at once
    if tidying.ansi and not (is_short and "\x1b" not in text):
        tidied = strip_escapes(tidied, repaint=tidying.progress)
    if tidying.progress and not (is_short and "\r" not in tidied):
        tidied = settle_progress(tidied)
    if may_be_json(tidied) and not is_file():
        short = shorten_json(tidied, spaces=tidying.json, tables=tidying.tables)
        tidied = short if short is not None and fits(short) else tidied
    if tidied == text or all(not piece or piece.isspace() for piece in cut_pieces(tidied)):  # nothing would be left
        return text
    return tidied


MIN_CHARS = 160  # A result of at most this length stays unchanged. Chosen: there is little to save.


def _tidy(result: Result, count: CountTokens) -> tuple[str, ...]:
    texts, tidying, budget = result.message.texts, result.treatment.tidying, result.treatment.budget
    if tidying is None:
        return texts

    def fits(text: str) -> bool:
        # An error has the larger budget. `is_error` is slow, so it is asked only if the two budgets differ in effect.
        if _fits_share(text, budget, len(texts), count):
            return True
        return _fits_share(text, budget.for_error(), len(texts), count) and result.is_error

    def is_file() -> bool:
        return result.call is not None and reads_json_file(result.call)

    return tuple(tidy_text(text, tidying, is_file=is_file, fits=fits) for text in texts)


def _fits_share(text: str, budget: Budget, texts: int, count: CountTokens) -> bool:
    max_bytes = budget.max_bytes
    if max_bytes is not None and measure_bytes(text) > max_bytes // texts:
        return False
    return count(text) <= budget.max_tokens // texts


_TELLING = Telling(
    "tool result",
    "{what} {was} tidied, {saved}: colours, old states of progress bars, and blanks and repeated keys in JSON"
    " went{hidden}.",
)
TIDY = Editor(
    "tidy",
    lambda message, treatment: treatment.tidying is not None and sum(map(len, message.texts)) > MIN_CHARS,
    _tidy,
    "{} tool results tidied",
    _TELLING,
)
