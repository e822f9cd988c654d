"""Check the exact names in a note against what it covers: paths, URLs, ids and long numbers.

Law: a name that occurs in no source gets the mark `[unverified]`; nothing else in the note changes. Names are
recognised by their form, never by words of a language. In doubt there is no mark. Linear in what is covered, because
the number of searches for one note is bounded.

Names are marked, not removed: a sentence without its name says less, a name that the model worked out itself may be
right, and a reader who sees the mark can check.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from trimtab.rules.conversation import Message
from trimtab.rules.summary.request import SummaryRequest
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import UNVERIFIED

MOST_SEARCHES = 2000  # For one note; names after that get no mark. Chosen: 8,000 tokens have 300 names.
MOST_HITS = 64
"""Maximum number of places checked for a whole word. If more are inside longer words, it counts as found. Chosen:
bounds the work."""
LEAST_DIGITS = 5  # Shorter numbers are not checked. Chosen: they occur anywhere by chance.
MOST_DIGITS = 40  # A longer number is only searched as it is written. Chosen: bounds the work.
LEAST_ID_CHARS = 7  # Shortest id. Source: git's short hashes.
LEAST_SWITCHES = 3  # Changes between letters and digits in an id (`7f9c4d`). Names such as `x86` have fewer.

_WORD = r"[A-Za-z0-9_.@+~-]"
_CANDIDATE = compile_late(
    rf"""(?P<url>https?://[^\s<>"'`|\\^{{}}\[\]]++)
    |(?<![A-Za-z0-9_.@+~/\\$%{{}}<>*)\]-])
     (?P<path>(?:(?:~|\.{{1,2}}|[A-Za-z]:)?[/\\]{_WORD}++|{_WORD}++[/\\]{_WORD}++)(?:[/\\]{_WORD}++|)*+)
    |(?<![A-Za-z0-9_.,\u2248<>\u2264\u2265\u00b1~-])
     (?P<number>\d{{1,3}}(?=[,._'\u202f\u00a0]\d{{3}})(?:[,._'\u202f\u00a0]\d{{3}}|)*+|\d{{5,}}+)
     (?!\d|[A-Za-z_]{{4}}|[A-Za-z_]{{1,3}}\d)
    |(?<![A-Za-z0-9_-])(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{{5,}}+)
    |`(?P<name>[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{{0,200}}+)(?=[`:])""",
    re.VERBOSE,
)
_PLACE = compile_late(r"(?::\d+(?:[-:,]\d+)*)?[`\"'\u201d\u2019]?")
"""A line number or a closing quotation mark after a name. The mark is put after it."""
_EXTENSION = compile_late(r".\.[A-Za-z][A-Za-z0-9]{0,7}\Z")
_NAMED_FILES = frozenset({
    "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "cxx", "env", "go", "gradle", "h", "hpp", "html", "ini",
    "ipynb", "java", "js", "json", "jsonl", "jsx", "kt", "lock", "log", "lua", "md", "mjs", "php", "pl", "po",
    "proto", "ps1", "py", "pyi", "rb", "rs", "rst", "scala", "scss", "sh", "sql", "sqlite", "svelte", "svg",
    "swift", "tf", "toml", "ts", "tsx", "txt", "vue", "xml", "yaml", "yml", "zig", "zip",
})  # fmt: skip
"""Extensions that make a name in backticks a file's; other names with a dot may be attributes of an object."""
_OPEN_ENDED = frozenset("*{<$\u2026([")
"""Signs after a path that continue it: a glob or a placeholder. Such a path is not checked."""
_PIECES = compile_late(r"[a-z0-9_.@+~-]+")
_HEX = compile_late(r"(?=[0-9a-f]*[a-f])(?=(?:[a-f]*[0-9]){2})[0-9a-f]{7,64}", re.IGNORECASE)
_SWITCH = compile_late(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
_ESCAPED = compile_late(r"\\[nrtbf\"]")
_FENCE = compile_late(r"\s*(?:```|~~~)")
_DOUBTED = compile_late(rf"\S{{1,400}}[ ]{re.escape(UNVERIFIED)}")


def mark_unverified(note: str, sources: Iterable[str]) -> str:
    """Add a mark after each path, URL, id and number of five digits or more that no source contains.

    Case does not matter. A path is known if each of its parts is, so shortened paths are known. A name that is marked
    in a source does not count as known: repetition does not make it true.
    """
    known = _Known(sources)
    lines: list[str] = []
    in_fence = False
    for line in note.split("\n"):
        is_fence = _FENCE.match(line) is not None
        ends = [] if is_fence else _find_unknown(line, known)
        in_fence ^= is_fence
        if ends and in_fence:
            ends = [len(line)]  # code is copied verbatim, so no mark is put inside a line of it
        lines.append(_mark(line, ends))
    return "\n".join(lines)


def list_sources(request: SummaryRequest, base_text: str | None) -> Iterator[str]:
    """All texts from which the writer of a note may know a name.

    These are the covered messages, the leading messages, the task statement, the client's own summary of an earlier
    session, the previous summary (`base_text`) and the operator's instructions.
    """
    messages: tuple[Message, ...] = (*request.leading, *request.earlier, *request.span)
    for message in (*messages, *filter(None, (request.task, request.opening))):
        yield from message.texts
        for call in message.tool_calls:
            yield from (call.name, call.arguments, call.id)
    yield from (base_text or "", request.instructions)


def _mark(line: str, ends: list[int]) -> str:
    pieces: list[str] = []
    start = 0
    for end in ends:
        if not (line.startswith(f" {UNVERIFIED}", end) or line[:end].endswith(UNVERIFIED)):
            pieces += (line[start:end], f" {UNVERIFIED}")
            start = end
    return "".join((*pieces, line[start:]))


def _find_unknown(line: str, known: "_Known") -> list[int]:
    """The indexes in a line at which a mark is needed."""
    ends: list[int] = []
    for match in _CANDIDATE.finditer(line):
        kind, text = str(match.lastgroup), match[str(match.lastgroup)]
        if kind in {"url", "path"}:
            text = text.rstrip(".,;:!?)*_~-+@")
        end = match.start(kind) + len(text)
        behind = line[match.end(kind) : match.end(kind) + 2]
        if not _stands(kind, text, behind, known):
            place = _PLACE.match(line, end)
            ends.append(place.end() if place else end)
    return ends


def _stands(kind: str, text: str, behind: str, known: "_Known") -> bool:
    """Whether a candidate occurs in a source, or is not a name to be checked."""
    match kind:
        case "url":
            return known.has_url(text.lower())
        case "path":
            return not _is_path(text, behind) or known.has_path(text.lower().replace("\\", "/"))
        case "number":
            return known.has_number(text)
        case "id":
            return not any(map(_is_id_piece, re.split("[_-]", text))) or known.has_id(text.lower())
        case _ if "." in text:
            return text.rpartition(".")[2].lower() not in _NAMED_FILES or known.has_word(text.lower())
        case _:
            return _stands("number" if text.isdecimal() else "id", text, behind, known)


def _is_path(text: str, behind: str) -> bool:
    """Whether a text is surely a path: it begins at a root or a home, or has an extension. `and/or` is not a path."""
    if set(behind.lstrip("/\\")[:1]) & _OPEN_ENDED:
        return False
    return text[0] in "/\\~." or text[1:2] == ":" or _EXTENSION.search(text) is not None


def _is_id_piece(piece: str) -> bool:
    """Whether a text cannot be a word: a hexadecimal or long decimal number, or a mix of letters and digits."""
    if _HEX.fullmatch(piece) or (piece.isdecimal() and len(piece) >= LEAST_DIGITS):
        return True
    return len(piece) >= LEAST_ID_CHARS and len(_SWITCH.findall(piece)) >= LEAST_SWITCHES


class _Known:
    """The sources as one text to search, in lower case and with slashes instead of backslashes."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._text = "\n".join(plain for source in sources for plain in _write_plain(source))
        self._found: dict[str, bool] = {}
        self._searches = 0

    def has_path(self, path: str) -> bool:
        """Whether the sources contain the path, or each of its parts."""
        return self._has(path) or all(map(self.has_word, _pieces(path)))

    def has_url(self, url: str) -> bool:
        """Whether the sources contain the URL, or each of its parts; its scheme and a final slash do not matter."""
        address = url.partition("://")[2].rstrip("/")
        return self._has(address) or all(map(self.has_word, _pieces(address)))

    def has_id(self, text: str) -> bool:
        """Whether the sources contain the id, or each of its distinctive pieces. A shortened id is known, too."""
        pieces = [piece for piece in re.split("[_-]", text) if _is_id_piece(piece)]
        return self._has(text) or all(map(self._has, pieces))

    def has_number(self, text: str) -> bool:
        """Whether the sources contain the number, however its digits are grouped.

        Also true for multiples of 1,000, which may be rounded, and for a number that was rounded up from one with
        decimals.
        """
        digits = re.sub(r"\D", "", text)
        if len(digits) < LEAST_DIGITS or digits.endswith("000"):
            return True
        if len(digits) > MOST_DIGITS:
            return self._has(text)
        written = [text, digits, *(f"{int(digits):,}".replace(",", sign) for sign in ",._ '\u202f\u00a0")]
        if len(digits) == 8:  # it may be a date: 20261123 is also written 2026-11-23
            written.append(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}")
        return any(self._has_between(each, str.isdecimal) for each in written) or self._has(f"{int(digits) - 1}.")

    def has_word(self, word: str) -> bool:
        """Whether the sources contain the word, not only inside a longer one."""
        return self._has_between(word, _is_letter)

    def _has(self, text: str) -> bool:
        found = self._found.get(text)
        if found is None:
            self._searches += 1
            found = self._found[text] = self._searches > MOST_SEARCHES or text in self._text
        return found

    def _has_between(self, text: str, belongs: Callable[[str], bool]) -> bool:
        """Whether the text occurs somewhere between characters for which `belongs` is false."""
        if not self._has(text):
            return False
        start = self._text.find(text)
        for _ in range(MOST_HITS):
            if start < 0:
                return self._searches > MOST_SEARCHES
            end = start + len(text)
            if not (belongs(self._text[start - 1 : start]) or belongs(self._text[end : end + 1])):
                return True
            start = self._text.find(text, start + 1)
        return True


def _is_letter(char: str) -> bool:
    """Whether a character continues a word. Only ASCII does: other scripts may have letters right beside a name."""
    return char.isascii() and (char.isalnum() or char == "_")


def _pieces(text: str) -> Iterator[str]:
    """The names in a path or a URL, without parts such as `.`, `..` and `~`."""
    return (piece for found in _PIECES.findall(text) if (piece := found.strip(".~")))


def _write_plain(source: str) -> Iterator[str]:
    """A source in the form that is searched: without marked names, with slashes instead of backslashes.

    A backslash may be a separator of a path or begin an escape in JSON, so such a source is given both ways.
    """
    if UNVERIFIED in source:
        source = _DOUBTED.sub("", source)
    if "\\" not in source:
        yield source.lower()
        return
    for text in dict.fromkeys((source, _ESCAPED.sub(" ", source))):
        yield text.replace("\\/", "/").replace("\\\\", "/").replace("\\", "/").lower()
