"""Finds files that are written out in a text: `data:` URLs, Base64, hex, and hex dumps.

Law: a marker replaces each of them whole, so no reader takes a part of one for the file. Linear in the text, and no
call into C code takes long. What is no payload stays: words, paths, names, code, hashes, lists of hashes, keys.

Base64 and hex may be broken into lines, also within the strings of JSON, where a line break is an escape.
"""

import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from trimtab.rules.text.head_tail import PIECE_CHARS
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import mark_payload

MIN_URL_CHARS = 40  # A data URL with less data stays. Chosen: its marker would be as long.
MIN_CHARS = 256  # Shorter Base64 or hex stays. Chosen: longer than hashes, signatures and most keys.
LINE_CHARS = 40  # Shorter lines are no lines of broken Base64. Source: PEM breaks after 64 characters, MIME after 76.
PREFIX_CHARS = 400  # chosen: longer than types and parameters of real URLs
MIN_LINES = 3  # chosen: two lines may be names
DIGEST_CHARS = frozenset({32, 40, 48, 56, 64, 96, 128})
"""Lines of hex of these lengths are taken for hashes, not for a payload."""
MIN_DUMP_LINES = 8
MIN_DIGITS = 6  # different ones; chosen: fewer are a pattern
MIN_PAIRS = 64  # Bytes in hex that are written one by one
SAMPLE_CHARS, SAMPLES = 64, 12  # Where Base64 is told from words: in this many places
MIN_CHANGES = 0.4
"""Share of neighbouring characters of different kinds: capital, small letter, digit. Random Base64 has 0.64, encoded
text 0.5, names in camel case 0.3."""
MAX_SIGNS = 0.1  # Share of characters that are neither letters nor digits. Random Base64 has 0.03, paths have more.
STILL_CHARS = 4  # A stretch of so few different characters looks like no encoding. Chosen.
_RUN = "A-Za-z0-9+/_%-"
_SKIP = compile_late(rf"(?:[^{_RUN}]++|[{_RUN}]{{1,{LINE_CHARS - 1}}}+(?![{_RUN}])|)*+")
_ESCAPED = r"\\/|\\u002[bBfF]"
_MORE = compile_late(rf"(?:[{_RUN}]|{_ESCAPED}|)*+")
_PADDING = compile_late(r"(?:=|\\u003[dD]){0,3}")
_BEFORE_LINE = (
    r"[ \t]{0,64}(?:[>|*#][ \t]{0,8}|(?:[\w.~@/ -]{1,120}:)?\d{1,7}[ \t]{0,2}[→:|│\t][ \t]?)?(?:\\{0,3}[\"'`])?"
)
"""What may stand before a line: blanks, a sign of a quotation, the line's number and file, a quotation mark."""
_BREAK = compile_late(
    r"(?:\\{0,3}[\"'`])?[ \t]{0,2}[,+.]?[ \t]{0,2}(?:\\?\r?\n|(?:\\{1,4}r)?\\{1,4}n|<br ?/?>)" + _BEFORE_LINE
    + rf"| (?=[{_RUN}]{{{LINE_CHARS}}}|[{_RUN}]{{1,80}}=)"
)  # fmt: skip
_LINE_START = compile_late(_BEFORE_LINE)
_SIGN = compile_late(_ESCAPED)
_SYMBOL = compile_late(r"_{1,4}(?:Z|R[A-Z])")  # Begins the name of a function in an object file
_PREFIX = compile_late(r"data:([A-Za-z0-9.+-]{1,64}\\?/[A-Za-z0-9.+-]{1,64})?(?:;[\w.+=-]{1,64}){0,8},")
_PLAIN = compile_late(r"[^\s\"'`<>)\\\]]*+")
_HEX = compile_late(r"[0-9a-fA-F]*+\Z")
_KINDS = str.maketrans(
    {
        **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "A"),
        **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", "a"),
        **dict.fromkeys("0123456789", "0"),
        **dict.fromkeys("+/_-%", "+"),
    }
)
_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"wOF", "font/woff"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "a database"),
)
_OFFSET = (
    r"[0-9a-fA-F]{6,16}:?[ \t]{1,4}(?P<hex>(?:[0-9a-fA-F]{2,8}[ \t]{1,4}){2,}[0-9a-fA-F]{2,8}(?![0-9a-zA-Z]))"
    r"(?P<gap>[ \t]{0,48})(?P<said>(?:[^\n\\]|\\(?!n)){0,200})"
)
_PAIR = r"(?:0[xX])?[0-9a-fA-F]{2}"
_BYTE = rf"{_PAIR}[:, ][ \t]{{0,2}}|\\{{1,2}}x[0-9a-fA-F]{{2}}"
_PAIRS = rf"(?>(?:{_BYTE}){{7}})(?:{_BYTE}|)*+(?:{_PAIR})?[:,]?"
_DUMP_LINE = compile_late(
    rf"[ \t]{{0,32}}(?:(?P<at>{_OFFSET})|(?P<pairs>{_PAIRS})|\*)[ \t\r]{{0,8}}(?P<end>\n|\\n|\Z|(?=[\"'`)\]}}]))"
)
_STARTS_DUMP = compile_late(
    r"(?m)(?:^|[\"'({\[=]|\\n)(?P<dump>(?:0[xX])?[0-9a-fA-F]{2}[:, ]|\\{1,2}x[0-9a-fA-F]{2}\\)"
    r"|(?:^|[\"'`(]|\\n)(?P<line>[ \t]{0,32}(?:0[xX])?[0-9a-fA-F]{2}(?:[:, ]|[0-9a-fA-F]{4,14}:?[ \t]))"
)


class Hidden(NamedTuple):
    """A text without its payloads. `moves_lines`: it has fewer lines than before."""

    text: str
    moves_lines: bool = False


class _Payload(NamedTuple):
    start: int
    stop: int
    kind: str
    size: int
    form: str


def hide_payloads(text: str) -> Hidden:
    """The text with a marker in place of each payload; the same text if it has none."""
    found = _find(text)
    pieces: list[str] = []
    done, moves = 0, False
    for one in found:
        if one.start < done:
            continue
        pieces += [text[done : one.start], mark_payload(one.kind, one.size, one.form)]
        moves = moves or text.find("\n", one.start, one.stop) >= 0
        done = one.stop
    return Hidden("".join((*pieces, text[done:])), moves) if pieces else Hidden(text)


def find_payload(text: str) -> int:
    """Where the first payload begins; the end of the text if it has none."""
    return next((one.start for one in _find(text)), len(text))


def _find(text: str) -> list[_Payload]:
    return sorted([*_find_urls(text), *_find_runs(text), *_find_dumps(text)]) if len(text) >= MIN_URL_CHARS else []


def _find_urls(text: str) -> Iterator[_Payload]:
    at = text.find("data:")
    while at >= 0:
        head = _PREFIX.match(text, at, at + PREFIX_CHARS)
        payload = None if head is None else _read_url(text, head)
        if payload is not None:
            yield payload
        at = text.find("data:", at + 1 if payload is None else payload.stop)


def _find_runs(text: str) -> Iterator[_Payload]:
    at = 0
    while at < len(text):
        window = min(at + PIECE_CHARS, len(text))
        skipped = _SKIP.match(text, at, window)
        start = at if skipped is None else skipped.end()
        if window - start < LINE_CHARS:
            # A run may begin before the end of the window: shorter than a line, so it is seen again.
            at = window if window == len(text) else max(window - LINE_CHARS, at + 1)
            continue
        payload, stop = _read_bare(text, start)
        if payload is not None:
            yield payload
        at = max(stop, start + 1)


def _end_run(text: str, start: int) -> int:
    """The end of the Base64 that begins here, without its padding. Read in pieces."""
    while True:
        found = _MORE.match(text, start, start + PIECE_CHARS)
        stop = start if found is None else found.end()
        if stop < start + PIECE_CHARS - 1:
            return stop
        start = stop


def _end_padding(text: str, at: int) -> int:
    found = _PADDING.match(text, at)
    return at if found is None else found.end()


def _read_url(text: str, head: re.Match[str]) -> _Payload | None:
    start = head.end()
    if not head[0].endswith(";base64,"):
        stop, form = _end_plain(text, head.start(), start), "as a data URL"
        size = stop - start
    else:
        broken = _BREAK.match(text, start)
        stop, lengths = _read_lines(text, start if broken is None else broken.end())
        form, size = "in Base64", sum(lengths) * 3 // 4
    if stop - start < MIN_URL_CHARS:
        return None
    kind = (head[1] or "text/plain").replace("\\", "")
    return _Payload(head.start(), stop, kind, size, form)


def _end_plain(text: str, at: int, start: int) -> int:
    """The end of a data URL at `at`, whose data begins at `start`: of one in quotation marks, the next such mark."""
    if at and text[at - 1] in "\"'`":
        quoted = text.find(text[at - 1], start, start + PIECE_CHARS)
        if quoted >= 0 and "\n" not in text[start:quoted]:
            return quoted - (text[quoted - 1] == "\\")
    while True:
        found = _PLAIN.match(text, start, start + PIECE_CHARS)
        stop = start if found is None else found.end()
        if stop < start + PIECE_CHARS:
            return stop
        start = stop


def _read_lines(text: str, start: int) -> tuple[int, list[int]]:
    """The end of Base64 that may be broken into lines of one length, and the lengths of its lines."""
    stop = _end_run(text, start)
    lengths = [stop - start]
    while (padded := _end_padding(text, stop)) == stop:
        broken = _BREAK.match(text, stop)
        if broken is None or lengths[-1] < LINE_CHARS:
            break
        end = _end_run(text, broken.end())
        length = end - broken.end()
        is_last = broken[0] == " " or not _goes_on(text, end)
        if length == 0 or not is_last or not _fits(text, broken.end(), end, lengths):
            break
        lengths.append(length)
        stop = end
        if length < max(lengths[1:2]):
            padded = _end_padding(text, stop)
            break
    return max(stop, padded), lengths


def _goes_on(text: str, at: int) -> bool:
    """Whether a line has more than Base64."""
    at = _end_padding(text, at)
    return at < len(text) and text[at] not in "\r\n\"'`)\\" and _BREAK.match(text, at) is None


def _fits(text: str, start: int, end: int, lengths: list[int]) -> bool:
    """Whether a line can follow lines of these lengths: it is as long as the last one, or the shorter last line."""
    width, length = lengths[-1], end - start
    if len(lengths) == 1:
        return length >= LINE_CHARS or _ends_payload(text, start, end)
    return length == width or (length < width and _ends_payload(text, start, end))


def _ends_payload(text: str, start: int, end: int) -> bool:
    """Whether a short last line is no word."""
    line = text[start:end]
    return text.startswith("=", end) or (len(line) % 4 == 0 and not (line.isalpha() and len(line) < LINE_CHARS))


def _read_bare(text: str, start: int) -> tuple[_Payload | None, int]:
    """Base64 or hex that begins here, and where to go on."""
    start = _begin(text, start)
    stop = _end_run(text, start)
    if stop - start < MIN_CHARS and _BREAK.match(text, stop) is None:
        return None, stop
    end, lengths = _read_lines(text, start) if _begins_line(text, start) else (stop, [stop - start])
    if len(lengths) < MIN_LINES:
        end, lengths = _end_padding(text, stop), [stop - start]
    if end - start < MIN_CHARS or _SYMBOL.match(text, start) is not None:
        return None, end
    prefix = 2 * text.startswith(("0x", "0X"), start)
    samples = _sample(text, start + prefix, end)
    if all(_HEX.match(sample) for sample in samples):
        payload = _Payload(start, end, "data", (sum(lengths) - prefix) // 2, "in hex")
        return payload if _is_hex("".join(samples), lengths) else None, end
    if not _is_base64(samples):
        return None, end
    return _Payload(start, end, _tell_kind(text[start : start + 64]), sum(lengths) * 3 // 4, "in Base64"), end


def _is_hex(digits: str, lengths: list[int]) -> bool:
    """Whether hex digits are a payload, and no hashes, numbers or words."""
    is_list = len(lengths) > 1 and lengths[0] in DIGEST_CHARS
    return not (is_list or len(set(digits)) < MIN_DIGITS or digits.isdigit() or digits.isalpha())


def _begin(text: str, start: int) -> int:
    """The start of the Base64 at this place: farther on behind an escape, farther back if signs in it are escaped."""
    least = max(start - PIECE_CHARS, 0)
    while start > least and _SIGN.match(text, start - 1) is not None:
        start -= 1
        while start > least and (text[start - 1].isalnum() or text[start - 1] in "+/_-"):
            start -= 1
    if start and text[start - 1] == "\\":
        return start + (5 if text[start] == "u" else 1)
    return start


def _begins_line(text: str, start: int) -> bool:
    before = text[max(start - 200, 0) : start]
    escaped = before.rfind("\\n")
    line = before[max(before.rfind("\n") + 1, escaped + 2 if escaped >= 0 else 0) :]
    return _LINE_START.fullmatch(line) is not None or line.rstrip(" \t").endswith(('"', "'", "`", ",", ">"))


def _sample(text: str, start: int, stop: int) -> list[str]:
    step = max((stop - start - SAMPLE_CHARS) // (SAMPLES - 1), SAMPLE_CHARS)
    pieces = [text[at : min(at + SAMPLE_CHARS, stop)] for at in range(start, stop - SAMPLE_CHARS // 2, step)]
    return ["".join(_BREAK.sub("", piece).replace("\\/", "/").split()) for piece in pieces]


def _is_base64(samples: list[str]) -> bool:
    """Whether capitals, small letters and digits change as in Base64. Stretches of zeros are allowed."""
    telling = [sample.rstrip("=") for sample in samples if len(set(sample)) > STILL_CHARS]
    together = "".join(telling)
    signs = len(together) - sum(map(str.isalnum, together))
    if signs > MAX_SIGNS * len(together) or not ({*together}.isdisjoint("+/") or {*together}.isdisjoint("_-")):
        return False
    if "%" in together or len({*together.translate(_KINDS)} - {"+"}) < len("Aa0"):
        return False
    kinds = [sample.translate(_KINDS) for sample in telling]
    shares = [sum(one != two for one, two in pairwise(each)) / max(len(each) - 1, 1) for each in kinds]
    return sum(share >= MIN_CHANGES for share in shares) > len(telling) / 2


def _tell_kind(head: str) -> str:
    head = head.replace("\\/", "/").replace("\\u002b", "+").replace("\\u002B", "+")
    try:
        data = b64decode(head[: len(head) // 4 * 4])
    except ValueError:
        return "data"
    return next((name for magic, name in _MAGIC if data.startswith(magic)), "data")


def _find_dumps(text: str) -> Iterator[_Payload]:
    at = 0
    while at < len(text):
        found = _STARTS_DUMP.search(text, at, min(at + PIECE_CHARS, len(text)))
        if found is None:
            at += PIECE_CHARS - 64 if at + PIECE_CHARS < len(text) else PIECE_CHARS
            continue
        payload, stop = _read_dump(text, max(found.start("dump"), found.start("line")))
        if payload is not None:
            yield payload
        at = max(stop, found.end())


def _read_dump(text: str, start: int) -> tuple[_Payload | None, int]:
    """The dump that begins here, and where to go on."""
    places: list[str] = []
    at, stop, lines, pairs = start, start, 0, 0
    while (line := _DUMP_LINE.match(text, at)) is not None:
        lines += 1
        if line["at"]:
            places.append(line["at"].split(":")[0].split()[0])
        elif line["pairs"]:
            pairs += line["pairs"].lower().count("x") or (len(line["pairs"]) + 1) // 3
        over = _count_over(line)
        at, stop = line.end(), line.start("end") - over
        if over or not line["end"]:
            break
    if places:
        is_dump = lines >= MIN_DUMP_LINES and _count_up(places[:MIN_DUMP_LINES])
        size = lines * 16
    else:
        is_dump, size = pairs >= MIN_PAIRS and _has_letters(text[start : start + 1000]), pairs
    return _Payload(start, stop, "data", size, "in hex") if is_dump else None, stop


def _count_over(line: re.Match[str]) -> int:
    """The characters of a line that are behind its dump: each byte may be said by one character, or by an escape."""
    said = line["said"] or ""
    column = said.rstrip(" \t\r\\")
    if not column:
        return 0
    most = sum(map(len, line["hex"].split())) // 2 + said.count("\\")
    if said[0] in "|>":
        most = said.rfind({"|": "|", ">": "<"}[said[0]], 1, most + 2) + 1
    elif len(line["gap"]) < len("  "):
        most = 0
    return len(said) - most if len(column) > most else 0


def _has_letters(dump: str) -> bool:
    """Whether bytes are in hex, and no decimal numbers. A fifth of hex digits would be enough."""
    return sum(map(str.isalpha, dump)) >= len(dump) // 20


def _count_up(places: list[str]) -> bool:
    """Whether the places of lines go up by the same number of bytes, in hex or in octal."""
    for base, width in ((16, (8, 16, 24, 32)), (8, (8, 16, 32)), (10, (16,))):
        try:
            numbers = [int(place, base) for place in places]
        except ValueError:
            continue
        if {later - earlier for earlier, later in pairwise(numbers)} & {*width} and numbers == sorted(numbers):
            return True
    return False
