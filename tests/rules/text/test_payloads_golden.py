"""What is taken for a file and what is not, on both sides of each limit, as it is."""

import json  # noqa: TID251 - texts as others write them in JSON
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from random import Random
from textwrap import wrap

import pytest
from support.golden import check_golden

from trimtab.rules.text.payloads import hide_payloads

pytestmark = pytest.mark.covered

RANDOM = Random(7)  # noqa: S311 - no secret
BYTES = RANDOM.randbytes(6000)
BASE64, SAFE, HEX = b64encode(BYTES).decode(), urlsafe_b64encode(BYTES).decode(), BYTES.hex()
ENCODED = b64encode(" ".join(f"word {number} of a text" for number in range(300)).encode()).decode()
NAMES = "".join(f"getTheValueOf{chr(65 + number % 26)}{'abcdefghij'[number % 10] * 5}Number" for number in range(60))
MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF89a", b"%PDF-1.4", b"PK\x03\x04", b"\x1f\x8b", b"OggS", b"ID3", b"wOFF",
         b"\x7fELF", b"SQLite format 3", b"none")  # fmt: skip
AROUND: dict[str, Callable[[str], str]] = {
    "alone": str,
    "said": lambda data: f"before {data} behind",
    "line": lambda data: f"before\n{data}\nbehind\n",
    "quoted": lambda data: f'x = "{data}";',
    "json": lambda data: json.dumps({"a": data, "b": [data[:50]]}),
    "slashes": lambda data: json.dumps({"a": data}).replace("/", "\\/"),
    "in a call": lambda data: f"load({data})",
}


def _break(data: str, width: int, end: str = "\n") -> str:
    return end.join(data[at : at + width] for at in range(0, len(data), width))


def _make_plain() -> Iterator[tuple[str, str]]:
    for length in (31, 100, 254, 255, 256, 257, 300, 3000):
        for name, data in (("base64", BASE64), ("safe", SAFE), ("hex", HEX), ("encoded", ENCODED), ("names", NAMES)):
            yield f"{name} {length}", data[:length]
    for length in (255, 256, 600):
        yield f"padded {length}", BASE64[: length - 1] + "="
        yield f"digits {length}", "".join(str(number * 7919 % 10) for number in range(length))
        yield f"letters {length}", "".join("abcdef"[number * 31 % 6] for number in range(length))
        yield f"capitals {length}", HEX.upper()[:length]
        yield f"five digits {length}", re.sub("[5-9a-f]", "1", HEX)[: length - 1] + "a"
        yield f"zeros {length}", BASE64[:80] + "A" * length + BASE64[80:160]
        yield f"mostly zeros {length}", BASE64[:40] + "0" * length
        yield f"path {length}", ("src/harbour/Tide9/" * 60)[:length]
        yield f"percent {length}", BASE64[:100] + "%2F" + BASE64[100:length]
        yield f"mixed {length}", BASE64[: length // 2] + SAFE[length // 2 : length] + "-_+/"
    for magic in MAGIC:
        yield f"begins {magic!r}", b64encode(magic + BYTES[:300]).decode()


def _make_lines() -> Iterator[tuple[str, str]]:
    for width in (38, 39, 40, 41, 60, 64, 76):
        for lines in (2, 3, 4, 9):
            yield f"{lines} lines of {width}", _break(BASE64[: width * lines], width)
            yield f"{lines} lines of {width} and a bit", _break(BASE64[: width * lines + 8], width)
            yield f"{lines} lines of hex of {width}", _break(HEX[: width * lines], width)
            yield f"{lines} lines of {width} and a word", _break(BASE64[: width * lines], width) + "\nlast"
            yield f"{lines} lines of {width}, padded", _break(BASE64[: width * lines], width) + "\nab=="
    for end in ("\r\n", "\\n", "\\r\\n", "\n    ", "\n\n", "\n\t"):
        yield f"8 lines that end with {end!r}", _break(BASE64[:600], 76, end)
    yield "lines of other lengths", "\n".join(BASE64[at * 70 : at * 70 + 45 + at] for at in range(9))
    yield "a longer second line", f"{BASE64[:50]}\n{_break(BASE64[50:700], 76)}"


def _make_urls() -> Iterator[tuple[str, str]]:
    for length in (38, 39, 40, 41, 300):
        for head in (
            "data:image/png;base64,",
            "data:;base64,",
            "data:text/html;charset=utf-8;base64,",
            "data:text/css,",
        ):
            yield f"{head} {length}", head + BASE64[:length]
            yield f"{head} {length}, broken", head + "\n" + _break(BASE64[:length], 76)
        yield f"data:svg {length}", ("data:image/svg+xml,%3Csvg width='1' height='1'%3E" + "%20" * 200)[: length + 19]
        yield f"data of nothing {length}", ("data:no comma in it " + BASE64)[: length + 20]
    yield "data in backticks", f"`data:image/svg+xml,<svg a='b'>{'x' * 60}</svg>` behind"
    yield "two urls", f"data:image/gif;base64,{BASE64[:80]} data:image/gif;base64,{BASE64[:90]}"


def _make_dumps() -> Iterator[tuple[str, str]]:
    for lines in (3, 7, 8, 9, 20):
        rows = [BYTES[at * 16 : at * 16 + 16] for at in range(lines)]
        pairs = [row.hex(" ") for row in rows]
        yield (
            f"xxd {lines}",
            "\n".join(f"{at * 16:08x}: {row.hex(' ', 2)}  ................" for at, row in enumerate(rows)),
        )
        yield f"hexdump {lines}", "\n".join(f"{at * 16:08x}  {row}  |....|" for at, row in enumerate(pairs))
        yield f"od {lines}", "\n".join(f"{at * 16:07o} {row}" for at, row in enumerate(pairs))
        yield f"decimal {lines}", "\n".join(f"{at * 16:06d} {row}" for at, row in enumerate(pairs))
        yield f"no places {lines}", "\n".join(pairs)
        yield f"with commas {lines}", "\n".join(row.hex(",") + "," for row in rows)
        yield (
            f"starred {lines}",
            "\n".join([f"00000000  {pairs[0]}", "*", *(f"{at * 16:08x}  {pairs[0]}" for at in range(9, 9 + lines))]),
        )
        yield f"addresses {lines}", "\n".join(f"{at * 7 + 4096:08x}: {row.hex(' ', 2)}" for at, row in enumerate(rows))
        yield (
            f"numbers {lines}",
            "\n".join(" ".join(f"{number * 7 % 90 + 10}" for number in range(at, at + 16)) for at in range(lines)),
        )
    for pairs_number in (62, 63, 64, 65):
        yield f"{pairs_number} pairs", BYTES[:pairs_number].hex(" ")


def _show(text: str) -> str:
    """What became of a text, with its long words cut: `stays`, or what is left."""
    hidden = hide_payloads(text)
    if hidden.text == text:
        assert not hidden.moves_lines
        return "stays"
    left = re.sub(r"[^\s\[\]]{40,}", lambda found: f"{found[0][:9]}...{len(found[0])}...{found[0][-9:]}", hidden.text)
    return f"{'moves ' if hidden.moves_lines else ''}{left!r}"


def _tell(made: Iterator[tuple[str, str]]) -> dict[str, str]:
    """The outcome of each text in each place in which it does not stay; then the texts that stay everywhere."""
    told = {name: {where: _show(around(data)) for where, around in AROUND.items()} for name, data in made}
    lines = {
        name: "\n".join(f"{where}: {shown}" for where, shown in each.items() if shown != "stays")
        for name, each in told.items()
    }
    staying = "; ".join(name for name, text in lines.items() if not text)
    return {name: text for name, text in lines.items() if text} | {"stay everywhere": "\n".join(wrap(staying, 118))}


def test_what_is_taken_for_a_file_is_as_it_was() -> None:
    """In plain Base64 and hex, in lines, in URLs and in dumps; alone, in sentences, in code and in JSON."""
    for name, made in {"plain": _make_plain, "lines": _make_lines, "urls": _make_urls, "dumps": _make_dumps}.items():
        check_golden(f"payloads/{name}", _tell(made()))
