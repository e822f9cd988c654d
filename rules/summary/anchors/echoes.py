"""Find lines of the removed part that share rare words with the tail: the next answers are likely to need them.

Law: a function of both texts. A line counts only if it contains a name or a number, and if it shares a word with the
tail that few lines have. Linear; only the newest READ_CHARS characters of the removed part are read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import fsum, sqrt
from typing import NamedTuple

from rules.conversation import Message, Role
from rules.summary.anchors.mentions import read_arguments
from rules.summary.anchors.names import find_names
from rules.summary.quoting import quote_line
from rules.text.markers import strip_markers

READ_CHARS = 1_000_000
"""The newest characters of the removed part that are read. Chosen: bounds the work."""
MIN_LINE_CHARS = 8
LINE_CHARS = 400
"""Shortest and longest line that counts; the end of a sentence ends a line, too. Chosen: longer lines are data, and
share some word with any text."""
SHOWN_CHARS = 160
"""Maximum number of characters shown of a line. Chosen."""
MOST_TOLD = 256
"""Maximum number of lines returned, the best ones. Chosen: more than the index has room for."""
MOST_LINES = 6
"""A word that is in more different lines than this does not count. Chosen: it distinguishes none of them."""

_WORD = re.compile(r"[^\W\d_][\w-]{3,63}+")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n")
_GUTTER = re.compile(r"\s{0,8}(?:[\w./-]{1,200}[:-])?\d{1,6}(?:\t|[:|-]\s?|\s\s)")
"""A file name or line number that a tool prints before a line of a file. It is not part of the line."""
_NUMBER = re.compile(r"\d{2,}")
_CODE = re.compile(r"[{}<>;=|\\]|\(\)|^[^\w\"'(*`-]|^[-dl][r-][w-][x-]")
_SPEAKERS = {Role.USER: "the user said", Role.ASSISTANT: "the assistant said", Role.TOOL: "a tool returned"}
FEWEST_WORDS = 4
"""Minimum number of words of a line of prose. In scripts without spaces each letter counts as a word. Chosen."""


class _Line(NamedTuple):
    """A line, who said it, and its position among all lines."""

    text: str
    role: Role
    place: int


def find_echoes(removed: Sequence[Message], tail: Sequence[Message], present: AbstractSet[str]) -> tuple[str, ...]:
    """Find lines of `removed` that share words with `tail`. Each result begins with who said the line.

    A line scores higher the more and the rarer words it shares, and the shorter it is. The best is first; of equal ones
    the newest is first. A line needs a name that is not `present` (known to the reader already), or a number.
    """
    wanted = frozenset(word for message in tail if message.role is not Role.TOOL for word in _find_words(_say(message)))
    shared: dict[str, frozenset[str]] = {}
    last: dict[str, _Line] = {}
    times: Counter[str] = Counter()
    for line in _find_lines(removed):
        if line.text not in shared:
            shared[line.text] = wanted & _find_words(line.text)
            times.update(shared[line.text])
        last[line.text] = line
    scores = {
        text: score
        for text, words in shared.items()
        if (score := _score(text, words, times))
        and _is_prose(text)
        and (find_names(text) - present or _NUMBER.search(text))
    }
    told = sorted(scores, key=lambda text: (-scores[text], -last[text].place))
    return tuple(f"{_SPEAKERS[last[text].role]}: {quote_line(text, SHOWN_CHARS)}" for text in told[:MOST_TOLD])


def _is_prose(line: str) -> bool:
    """Whether a line is prose, and not a line of a program, a listing or a table."""
    letters = sum(map(str.isalpha, line))
    words = sum(word.isalpha() for word in re.split(r"[\s,.:!?]+", line))
    wide = sum(char > "\u2e7f" for char in line)
    return max(words, wide) >= FEWEST_WORDS and letters >= len(line) / 2 and _CODE.search(line) is None


def _score(line: str, words: AbstractSet[str], times: Mapping[str, int]) -> float:
    # fsum is exact: the iteration order of a set varies between processes, but every replica must get the same sum.
    shared = fsum(_weigh(word) / times[word] for word in words if times[word] <= MOST_LINES)
    return shared / sqrt(len(line))


def _weigh(word: str) -> float:
    """A word with digits or several parts is rarer than a word of the language, and counts twice. Chosen."""
    return 1.0 if word.isalpha() else 2.0


def _say(message: Message) -> str:
    return "\n".join((*message.texts, *read_arguments(message.tool_calls)))


def _find_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _find_lines(messages: Sequence[Message]) -> Iterator[_Line]:
    """The lines and sentences of the newest messages, oldest first."""
    left, start = READ_CHARS, len(messages)
    while start and left > 0:
        start -= 1
        left -= sum(map(len, messages[start].texts))
    index = 0
    for message in messages[start:]:
        if message.role not in _SPEAKERS:
            continue
        for line in _SENTENCE_END.split(strip_markers(message.text[-READ_CHARS:])):
            gutter = _GUTTER.match(line) if message.role is Role.TOOL else None
            stripped = line[gutter.end() if gutter else 0 :].strip()
            if MIN_LINE_CHARS <= len(stripped) <= LINE_CHARS:
                index += 1
                yield _Line(stripped, message.role, index)
