"""What user and assistant have said: sentences, those first that tell most.

Law: a function of the texts alone. Nothing is said twice. Code that stands between fences is no statement. Linear in
the texts, of each of which only beginning and end are read.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rules.conversation import Message, Role
from rules.summary.digest.facts import Census, read_words
from rules.summary.digest.telegraph import shorten
from rules.summary.phrases import GOES_ON
from rules.summary.quoting import quote_line

HEAD_CHARS, TAIL_CHARS = 6000, 2000
"""Of one message's text."""
ALL_CHARS = 2_000_000
"""Of all messages, the newest ones."""
SENTENCE_CHARS = 300
CHARS_PER_TOKEN = 8
"""No more are looked at in detail than a budget could hold."""
MIN_CHARS = 12
"""A sentence costs so much more than its own characters."""

_FENCED = re.compile(r"(?:^|(?<=\n))[ \t]{0,3}(```|~~~).*?(?:\n[ \t]{0,3}\1|\Z)", re.DOTALL)
_END = re.compile(
    r"""[!?…][)"'”’»\]*]{0,3}\ +
    |(?<![\ (.][^\W\d_])(?<![\ (]\d)(?<![\ (]\d\d)(?<!\b(?:Mr|Dr|Nr|No|St|vs|ca))\.[)"'”’»\]*]{0,3}\ +
    |[。！？][」』”）]{0,3}""",
    re.VERBOSE,
)
"""Not behind a single letter or an ordinal number."""
_LIST = re.compile(r"(?:[-*+>•#]{1,4}|\d{1,3}[.)]) +")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of message `at`, the newest that has it."""

    at: int
    text: str
    words: tuple[str, ...]


def find_statements(messages: Sequence[Message]) -> tuple[Census, dict[Role, list[Statement]]]:
    """What user and assistant have said, oldest first; of a sentence that was said again the newest alone."""
    found: dict[Role, dict[str, list[int]]] = {Role.USER: {}, Role.ASSISTANT: {}}
    left = ALL_CHARS
    for at in range(len(messages) - 1, -1, -1):
        places = found.get(messages[at].role)
        if places is None or left < 0:
            continue
        for sentence in split_sentences(messages[at].text)[::-1]:
            left -= len(sentence)
            places.setdefault(sentence, []).append(at)
    census = Census()
    said = {role: [_state(sentence, places, census) for sentence, places in of.items()] for role, of in found.items()}
    return census.finish(), {role: statements[::-1] for role, statements in said.items()}


def _state(sentence: str, places: Sequence[int], census: Census) -> Statement:
    words = read_words(sentence)
    census.add(words, len(places))
    return Statement(places[0], sentence, words)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without blanks around them and without code between fences."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"
    if "```" in text or "~~~" in text:
        text = _FENCED.sub("\n", text)
    return [sentence for line in text.splitlines() for sentence in _split_line(" ".join(line.split()))]


def _split_line(line: str) -> Iterator[str]:
    begin = _LIST.match(line)
    start = begin.end() if begin else 0
    for end in _END.finditer(line, start):
        yield line[start : end.end()].rstrip()
        start = end.end()
    if start < len(line):
        yield line[start:]


def rank(
    statements: Sequence[Statement], census: Census, *, max_tokens: int, number: int
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Statements as lines, oldest first, as many as could have room; and in what order they are to be taken.

    `number` is how many messages there are: the newer, the earlier a statement is taken.
    """
    weighed = [
        (_weigh(one, census) * (0.8 + 0.4 * one.at / max(number, 1)), index) for index, one in enumerate(statements)
    ]
    best: list[tuple[float, int, str]] = []
    left = max_tokens * CHARS_PER_TOKEN
    for weight, index in sorted(weighed, reverse=True):
        line = quote_line(shorten(statements[index].text[: SENTENCE_CHARS * 2], census), SENTENCE_CHARS)
        if line.strip(" .!?…"):
            best.append((weight / (_width(line) + MIN_CHARS) ** 0.6, index, line))
            left -= len(line)
        if left < 0:
            break
    taken = _put_repeated_last(sorted(best, key=lambda one: (-one[0], -one[1])), statements, census)
    oldest_first = sorted(taken, key=lambda one: one[1])
    place = {index: place for place, (_, index, _) in enumerate(oldest_first)}
    return tuple(line for _, _, line in oldest_first), tuple(place[index] for _, index, _ in taken)


def _put_repeated_last(
    ranked: Sequence[tuple[float, int, str]], statements: Sequence[Statement], census: Census
) -> list[tuple[float, int, str]]:
    """The same, those behind all others that name nothing which was not named before them."""
    named: set[str] = set()
    fresh: list[tuple[float, int, str]] = []
    stale: list[tuple[float, int, str]] = []
    for one in ranked:
        keys = census.find_keys(statements[one[1]].words)
        (stale if keys and keys <= named else fresh).append(one)
        named |= keys
    return fresh + stale


def _weigh(statement: Statement, census: Census) -> float:
    text = statement.text
    weight = census.weigh(text, statement.words)
    if text.endswith(("?", "？")):
        weight *= 0.4
    if GOES_ON.match(text):
        weight *= 0.5
    return weight


def _width(text: str) -> int:
    """About how much a text costs, in letters of scripts with blanks."""
    return len(text) if text.isascii() else sum(4 if "\u3040" <= char <= "\uffef" else 1 for char in text)
