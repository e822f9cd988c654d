"""What a note names exactly, held against what it covers: paths, addresses, ids and long numbers.

Law: a mark is put behind what stands nowhere, and nothing else of the note changes. It goes by signs, never by words of
a language. In doubt there is no mark. Linear in what is covered: so many searches at most for one note.

Marked, and not struck: a sentence without the name that it is about says less than one with a doubtful name, a name
that the model has worked out itself may be right, and whoever reads the mark can look.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from rules.conversation import Message
from rules.summary.request import SummaryRequest
from rules.text.markers import UNVERIFIED

MOST_SEARCHES = 2000
"""For one note. A note of 8,000 tokens names some 300 things; what is left then has no mark."""
MOST_HITS = 64
"""Places of one search that are looked at for a whole word; a word that stands so often in others is taken for one."""
LEAST_DIGITS = 5
MOST_DIGITS = 40
"""Of a number that is looked for in other ways than it is written: longer ones are no numbers."""
LEAST_ID_CHARS = 7
"""Source: git's short hashes."""
LEAST_SWITCHES = 3
"""Between letters and digits in an id, as in `7f9c4d`. Names such as `sha256sum` and `x86` have fewer."""

_WORD = r"[A-Za-z0-9_.@+~-]"
_CANDIDATE = re.compile(
    rf"""(?P<url>https?://[^\s<>"'`|\\^{{}}\[\]]++)
    |(?<![A-Za-z0-9_.@+~/\\$%{{}}<>*)\]-])
     (?P<path>(?:(?:~|\.{{1,2}}|[A-Za-z]:)?[/\\]{_WORD}++|{_WORD}++[/\\]{_WORD}++)(?:[/\\]{_WORD}++)*+)
    |(?<![A-Za-z0-9_.,\u2248<>\u2264\u2265\u00b1~-])
     (?P<number>\d{{1,3}}(?:[,._'\u202f\u00a0]\d{{3}})++|\d{{5,}}+)(?!\d|[A-Za-z_]{{4}}|[A-Za-z_]{{1,3}}\d)
    |(?<![A-Za-z0-9_-])(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{{5,}}+)
    |`(?P<name>[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{{0,200}}+)(?=[`:])""",
    re.VERBOSE,
)
_PLACE = re.compile(r"(?::\d+(?:[-:,]\d+)*)?[`\"'\u201d\u2019]?")
"""What belongs to a name, so that a mark stands behind it: a line's number, a closing sign."""
_EXTENSION = re.compile(r".\.[A-Za-z][A-Za-z0-9]{0,7}\Z")
_NAMED_FILES = frozenset(
    [
        "c",
        "cc",
        "cfg",
        "conf",
        "cpp",
        "cs",
        "css",
        "csv",
        "cxx",
        "env",
        "go",
        "gradle",
        "h",
        "hpp",
        "html",
        "ini",
        "ipynb",
        "java",
        "js",
        "json",
        "jsonl",
        "jsx",
        "kt",
        "lock",
        "log",
        "lua",
        "md",
        "mjs",
        "php",
        "pl",
        "po",
        "proto",
        "ps1",
        "py",
        "pyi",
        "rb",
        "rs",
        "rst",
        "scala",
        "scss",
        "sh",
        "sql",
        "sqlite",
        "svelte",
        "svg",
        "swift",
        "tf",
        "toml",
        "ts",
        "tsx",
        "txt",
        "vue",
        "xml",
        "yaml",
        "yml",
        "zig",
        "zip",
    ]
)
"""Extensions by which a name between backticks is a file's, and no attribute of an object."""
_OPEN_ENDED = frozenset("*{<$\u2026([")
"""Behind a path they say that it goes on with something else: a glob, a placeholder."""
_PIECES = re.compile(r"[a-z0-9_.@+~-]+")
_HEX = re.compile(r"(?=[0-9a-f]*[a-f])(?=(?:[a-f]*[0-9]){2})[0-9a-f]{7,64}", re.IGNORECASE)
_SWITCH = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
_ESCAPED = re.compile(r"\\[nrtbf\"]")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_DOUBTED = re.compile(rf"\S{{1,400}}[ ]{re.escape(UNVERIFIED)}")


def mark_unverified(note: str, sources: Iterable[str]) -> str:
    """The note with a mark behind each path, address, id and number of five digits or more that no source holds.

    Whatever case, and however a path is shortened: a path is known if each of its parts is. What was marked in a source
    counts for nothing, so that it does not become true by being repeated.
    """
    known = _Known(sources)
    lines: list[str] = []
    in_fence = False
    for line in note.split("\n"):
        is_fence = _FENCE.match(line) is not None
        ends = [] if is_fence else _find_unknown(line, known)
        in_fence ^= is_fence
        if ends and in_fence:
            ends = [len(line)]  # what stands in a block is copied to the letter
        lines.append(_mark(line, ends))
    return "\n".join(lines)


def list_sources(request: SummaryRequest, base_text: str | None) -> Iterator[str]:
    """All that whoever writes the note may know of: what it covers, what stands before, what was told of that."""
    messages: tuple[Message, ...] = (*request.leading, *request.earlier, *request.span)
    for message in (*messages, *((request.task,) if request.task is not None else ())):
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
    """Where a mark is to stand in a line."""
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
    """Whether a candidate stands in a source, or is none."""
    match kind:
        case "url":
            return known.has_url(text.lower())
        case "path":
            return not _is_path(text, behind) or known.has_path(text.lower().replace("\\", "/"))
        case "number":
            return known.has_number(text)
        case "id":
            return not _is_id(text) or known.has_id(text.lower())
        case _ if "." in text:
            return text.rpartition(".")[2].lower() not in _NAMED_FILES or known.has_word(text.lower())
        case _:
            return _stands("number" if text.isdecimal() else "id", text, behind, known)


def _is_path(text: str, behind: str) -> bool:
    """Whether it is surely one: from a root or a home, or to a file with an extension; `and/or` is none."""
    if set(behind.lstrip("/\\")[:1]) & _OPEN_ENDED:
        return False
    return text[0] in "/\\~." or text[1:2] == ":" or _EXTENSION.search(text) is not None


def _is_id(text: str) -> bool:
    return any(_is_id_piece(piece) for piece in re.split("[_-]", text))


def _is_id_piece(piece: str) -> bool:
    """Whether nobody would write it as a word."""
    if _HEX.fullmatch(piece) or (piece.isdecimal() and len(piece) >= LEAST_DIGITS):
        return True
    return len(piece) >= LEAST_ID_CHARS and len(_SWITCH.findall(piece)) >= LEAST_SWITCHES


class _Known:
    """What the sources hold, in lower case, with slashes for backslashes."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._text = "\n".join(plain for source in sources for plain in _write_plain(source))
        self._found: dict[str, bool] = {}
        self._searches = 0

    def has_path(self, path: str) -> bool:
        """Whether it stands there as it is, or all of its parts do."""
        return self._has(path) or all(map(self.has_word, _pieces(path)))

    def has_url(self, url: str) -> bool:
        """The same, without what may be left out: the scheme, a slash at the end."""
        address = url.partition("://")[2].rstrip("/")
        return self._has(address) or all(map(self.has_word, _pieces(address)))

    def has_id(self, text: str) -> bool:
        """Whether it stands there, or the pieces that tell it from others do; a longer id may be shortened."""
        pieces = [piece for piece in re.split("[_-]", text) if _is_id_piece(piece)]
        return self._has(text) or all(map(self._has, pieces))

    def has_number(self, text: str) -> bool:
        """However its digits are grouped; round numbers, and what was rounded up from one with decimals, are known."""
        digits = re.sub(r"\D", "", text)
        if len(digits) < LEAST_DIGITS or digits.endswith("000"):
            return True
        if len(digits) > MOST_DIGITS:
            return self._has(text)
        written = [text, digits, *(f"{int(digits):,}".replace(",", sign) for sign in ",._ '\u202f\u00a0")]
        if len(digits) == 8:
            written.append(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}")
        return any(self._has_between(number, _is_digit) for number in written) or self._has(f"{int(digits) - 1}.")

    def has_word(self, word: str) -> bool:
        """Whether it stands there, and not within a longer word."""
        return self._has_between(word, _is_letter)

    def _has(self, text: str) -> bool:
        found = self._found.get(text)
        if found is None:
            self._searches += 1
            found = self._found[text] = self._searches > MOST_SEARCHES or text in self._text
        return found

    def _has_between(self, text: str, belongs: Callable[[str], bool]) -> bool:
        """Whether it stands there between signs that do not belong to it."""
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


def _is_digit(char: str) -> bool:
    return char.isdecimal()


def _is_letter(char: str) -> bool:
    """Whether it makes a word longer; letters of other scripts stand beside a name without a blank."""
    return char.isascii() and (char.isalnum() or char == "_")


def _pieces(text: str) -> Iterator[str]:
    """The names in a path or an address, without the dots that only lead somewhere."""
    return (piece for found in _PIECES.findall(text) if (piece := found.strip(".~")))


def _write_plain(source: str) -> Iterator[str]:
    """A source as it is searched: without what was marked, with slashes for backslashes.

    In JSON a backslash may begin a line break as well: then it is searched both ways.
    """
    if UNVERIFIED in source:
        source = _DOUBTED.sub("", source)
    if "\\" not in source:
        yield source.lower()
        return
    for text in dict.fromkeys((source, _ESCAPED.sub(" ", source))):
        yield text.replace("\\/", "/").replace("\\\\", "/").replace("\\", "/").lower()
