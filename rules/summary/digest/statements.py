"""Select what user and assistant said, sentence by sentence; those with the most information come first.

Law: a function of only the texts. No sentence is repeated. Code in fences is left out. Linear; only the beginning and
the end of each text are read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rules.conversation import Message, Role
from rules.summary.digest.facts import Census, gives_reason, read_words
from rules.summary.digest.telegraph import shorten
from rules.summary.phrases import GOES_ON
from rules.summary.quoting import quote_line

HEAD_CHARS, TAIL_CHARS = 6000, 2000
"""Characters read at the beginning and at the end of one message's text. Chosen: bounds the work."""
ALL_CHARS = 2_000_000
"""The newest characters of all messages together that are read. Chosen: bounds the work."""
SENTENCE_CHARS = 300
"""Maximum number of characters of one statement. Chosen."""
CHARS_PER_TOKEN = 8
"""Statements with this many characters for each token of the budget are looked at in detail. Chosen: about twice what
fits, as a token has about four characters."""
MIN_CHARS = 12
"""Added to a statement's length before its weight is divided by it. Chosen: so very short ones are not favoured."""
QUESTION_SHARE, INTENT_SHARE = 0.4, 0.5
"""Factors for the weight of a question or a title, and of an announcement of what will be done next. Chosen."""

_SIGNS = " .,;:!?…。！？-"
_FENCED = re.compile(r"(?:^|(?<=\n))[ \t]{0,3}(```|~~~).*?(?:\n[ \t]{0,3}\1|\Z)", re.DOTALL)
_END = re.compile(
    r"""[!?…][)"'”’»\]*]{0,3}\ +
    |(?<![\ (.][^\W\d_])(?<![\ (]\d)(?<![\ (]\d\d)(?<!\b(?:Mr|Dr|Nr|No|St|vs|ca))\.[)"'”’»\]*]{0,3}\ +
    |[。！？][」』”）]{0,3}""",
    re.VERBOSE,
)
"""The end of a sentence. A full stop after a single letter, a short number or a title such as `Dr` does not end one."""
_LIST = re.compile(r"(?:[-*+>•#]{1,4}|\d{1,3}[.)]) +")


class Statement(NamedTuple):
    """A sentence; `at` is the index of the newest message that contains it."""

    at: int
    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """The sentences of one side, oldest first. A repeated sentence is listed once, at its newest place.

    `census` has the words of both sides.
    """

    role: Role
    statements: tuple[Statement, ...]
    census: Census


@dataclass(frozen=True, slots=True)
class Ranked:
    """Statements as single lines, oldest first, and the indexes of lines in the order in which to take them."""

    lines: tuple[str, ...]
    order: tuple[int, ...]


class _Line(NamedTuple):
    weight: float
    number: int
    text: str


def find_statements(messages: Sequence[Message]) -> tuple[Said, Said]:
    """Return the statements of the user and those of the assistant."""
    found: dict[Role, dict[str, int]] = {Role.USER: {}, Role.ASSISTANT: {}}
    times: Counter[str] = Counter()
    left = ALL_CHARS
    for at in range(len(messages) - 1, -1, -1):
        places = found.get(messages[at].role)
        if places is None or left < 0:
            continue
        acts = bool(messages[at].tool_calls)
        for sentence in split_sentences(messages[at].text)[::-1]:
            left -= len(sentence)
            if acts and GOES_ON.match(sentence) and not gives_reason(sentence):
                continue  # it announces a call, which the digest lists anyway
            times[sentence] += 1
            places.setdefault(sentence, at)
    census = Census()
    words = {sentence: read_words(sentence) for sentence in times}
    for sentence, number in times.items():
        census.add(words[sentence], number)
    census.finish()
    users, assistants = (
        Said(role, tuple(Statement(at, text, words[text]) for text, at in reversed(places.items())), census)
        for role, places in found.items()
    )
    return users, assistants


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, without white space around them and without code in fences.

    Only the first HEAD_CHARS and the last TAIL_CHARS characters of a longer text are read.
    """
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


def rank(said: Said, *, max_tokens: int, number: int) -> Ranked:
    """Rank the statements that might fit `max_tokens`, those with the most information for their length first.

    `number` is the number of messages: a newer statement weighs a little more. The user's first statement is taken
    before all others, because it says what the conversation is about.
    """
    statements, census, is_users = said.statements, said.census, said.role is Role.USER
    newness = [0.8 + 0.4 * one.at / max(number, 1) for one in statements]
    weights = [_weigh(one, census) * new for one, new in zip(statements, newness, strict=True)]
    best: list[_Line] = []
    left = max_tokens * CHARS_PER_TOKEN
    for index in sorted(range(len(statements)), key=lambda index: (index > 0 or not is_users, -weights[index], -index)):
        line = quote_line(shorten(statements[index].text[: SENTENCE_CHARS * 2], census), SENTENCE_CHARS)
        if line.strip(_SIGNS):
            best.append(_Line(weights[index] / (_width(line) + MIN_CHARS) ** 0.6, index, line))
            left -= len(line)
        if left < 0:
            break
    taken = _put_repeated_last(sorted(best, key=lambda line: (-line.weight, -line.number)), said)
    if is_users:
        taken.sort(key=lambda line: line.number != 0)
    oldest_first = sorted(taken, key=lambda line: line.number)
    place = {line.number: place for place, line in enumerate(oldest_first)}
    return Ranked(tuple(line.text for line in oldest_first), tuple(place[line.number] for line in taken))


def _put_repeated_last(ranked: Sequence[_Line], said: Said) -> list[_Line]:
    """Move a line to the end of the order if lines that rank higher contain all of its names."""
    named: set[str] = set()
    fresh: list[_Line] = []
    stale: list[_Line] = []
    for line in ranked:
        keys = said.census.find_keys(said.statements[line.number].words)
        (stale if keys and keys <= named else fresh).append(line)
        named |= keys
    return fresh + stale


def _weigh(statement: Statement, census: Census) -> float:
    text = statement.text
    weight = census.weigh(text, statement.words)
    if text.endswith(("?", "？", ":", "：")):
        weight *= QUESTION_SHARE
    return weight * INTENT_SHARE if GOES_ON.match(text) else weight


def _width(text: str) -> int:
    """The approximate cost of a text, in units of one ASCII character."""
    return len(text) if text.isascii() else sum(4 if "\u3040" <= char <= "\uffef" else 1 for char in text)
