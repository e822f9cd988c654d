"""What user and assistant have said: sentences, those first that tell most.

Law: a function of the texts alone. Nothing is said twice. Code that stands between fences is no statement. Linear in
the texts, of each of which only beginning and end are read.
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
"""Of one message's text."""
ALL_CHARS = 2_000_000
"""Of all messages, the newest ones."""
SENTENCE_CHARS = 300
CHARS_PER_TOKEN = 8
"""No more are looked at in detail than a budget could hold."""
MIN_CHARS = 12
"""A sentence costs so much more than its own characters."""
QUESTION_SHARE, INTENT_SHARE = 0.4, 0.5
"""Of the weight of a statement that counts if it is a question or a title, or says what will be done next."""

_SIGNS = " .,;:!?…。！？-"
_FENCED = re.compile(r"(?:^|(?<=\n))[ \t]{0,3}(```|~~~).*?(?:\n[ \t]{0,3}\1|\Z)", re.DOTALL)
_END = re.compile(
    r"""[!?…][)"'”’»\]*]{0,3}\ +
    |(?<![\ (.][^\W\d_])(?<![\ (]\d)(?<![\ (]\d\d)(?<!\b(?:Mr|Dr|Nr|No|St|vs|ca))\.[)"'”’»\]*]{0,3}\ +
    |[。！？][」』”）]{0,3}""",
    re.VERBOSE,
)
"""Not behind a single letter or an ordinal number."""
_LIST = re.compile(r"(?:[-*+>•#]{1,4}|\d{1,3}[.)]) +")


class Statement(NamedTuple):
    """A sentence of message `at`, the newest that has it."""

    at: int
    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What one side has said, oldest first; of a sentence that was said again the newest alone.

    `census` is of the words of both sides.
    """

    role: Role
    statements: tuple[Statement, ...]
    census: Census


@dataclass(frozen=True, slots=True)
class Ranked:
    """Statements as single lines, oldest first, and the places of lines in the order in which they are to be taken."""

    lines: tuple[str, ...]
    order: tuple[int, ...]


class _Line(NamedTuple):
    weight: float
    number: int
    text: str


def find_statements(messages: Sequence[Message]) -> tuple[Said, Said]:
    """What the user has said, and what the assistant has."""
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
                continue  # what it announces stands among the calls
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


def rank(said: Said, *, max_tokens: int, number: int) -> Ranked:
    """As many statements as could have room in `max_tokens`, those first that tell most for their length.

    `number` is how many messages there are: of two that tell as much, the newer is taken first. The user's first
    statement is taken before all others: it says what all is about.
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
    """The same lines, those last that name only what was named before them."""
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
    """About how much a text costs, in letters of scripts with blanks."""
    return len(text) if text.isascii() else sum(4 if "\u3040" <= char <= "\uffef" else 1 for char in text)
