"""Select what user and assistant said, sentence by sentence; those with the most information come first.

Laws: a function of only the texts. No sentence is repeated. Code in fences is left out. Linear; only the beginning and
the end of each text are read.

Information is facts that a reader without the text could not guess. Its weight depends on signs that most languages
share (digits, identifiers, quotations, names, rare words), and on a few words of decision in some languages.

A sentence is shortened by its greetings, fillers and parts without facts. No word is added or moved. Negations are
never dropped, and neither are conditions that name something.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from math import sqrt
from typing import NamedTuple

import msgspec

from trimtab.rules.conversation import Message, Role
from trimtab.rules.summary.handoff import GOES_ON
from trimtab.rules.summary.quoting import quote_line
from trimtab.rules.text.late import compile_late, read_table

_VERBOSE = re.VERBOSE | re.IGNORECASE
WORDS = read_table(__name__)
_TOKEN = compile_late(
    r"[^\s,;!?()\[\]{}<>\"`“”„«»|\u2026\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]+"
    r"|[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2}"
)
"""A word; in scripts without spaces, a pair of letters."""
_ENDS = ".:*_-'"
_EXACT = compile_late(r"\d|\w[_/@\\=]\w|[a-z][A-Z]|\w\.\w|[a-z]{2}-[a-z]{2,20}-[a-z]{2}")
_QUOTED = compile_late(r"`[^`]{1,80}`|[\"“„«][^\"“”»]{2,60}[\"”“»]|「[^」]{1,40}」|《[^》]{1,40}》|“[^”]{1,40}”")
_DECIDES = frozenset(WORDS["decides"].split())
_DECIDES_DENSE = compile_late(WORDS["decides anywhere"], re.VERBOSE)
DECISION_WEIGHT, QUOTED_WEIGHT = 0.35, 0.3
"""Added to a sentence that decides something, or that quotes something. Chosen, as all weights here. For comparison: an
exact word counts 1, a name 0.7."""
WORD_WEIGHT, LETTERS_WEIGHT, MOST_WORDS = 0.12, 0.08, 0.6
"""Added for each rare word or rare pair of letters, and the most for all of them together. Chosen."""
RARE_MENTIONS = 2  # A word that was said at most this often is rare. Chosen.
MANY_CAPITALS = 0.25
"""If more than this share of all words looks like a name, the language writes all nouns with a capital, as German does.
A capital then means less. Chosen."""


class Kind(Enum):
    """The form of a word. `EXACT` is an identifier, a number or a path; `LITTLE` is a short word."""

    EXACT = 0
    NAME = 1
    WORD = 2
    LETTERS = 3  # A pair of letters of a script without spaces
    LITTLE = 4


def read_words(text: str) -> tuple[str, ...]:
    return tuple(word.strip(_ENDS) for word in _TOKEN.findall(text))


def find_kind(word: str) -> Kind:
    """Return the form of a word, without regard to its place in a sentence."""
    if _EXACT.search(word):
        return Kind.EXACT
    if word[:1] >= "\u3040":
        return Kind.LETTERS
    if word[:1].isupper() and len(word) > 1:
        return Kind.NAME
    return Kind.WORD if len(word) > 3 else Kind.LITTLE


_KEEP = compile_late(WORDS["asks to keep"], _VERBOSE)
ASKED_WEIGHT = 3.0  # Added to a sentence that the user asks to remember. Chosen: about the most that others weigh.


def gives_reason(text: str) -> bool:
    return not _DECIDES.isdisjoint(text.lower().split()) or _DECIDES_DENSE.search(text) is not None


class Census(msgspec.Struct):
    """How often each word was said, and its form. First `add` all sentences, then `finish`, then read.

    `asked` has the sentences that the user asks to remember, `within` those in the middle of the user's long messages.
    """

    mentions: Counter[str] = msgspec.field(default_factory=Counter)
    kinds: dict[str, Kind] = msgspec.field(default_factory=dict)
    asked: set[str] = msgspec.field(default_factory=set)
    within: set[str] = msgspec.field(default_factory=set)
    name_weight: float = 0.7

    def add(self, words: Sequence[str], times: int = 1) -> None:
        """Add the words of a sentence that was said `times` times."""
        for word in words:
            self.mentions[word] += times

    def finish(self) -> "Census":
        """End the adding: find the forms of all words and the weight of a name. Returns the census itself."""
        self.kinds = {word: find_kind(word) for word in self.mentions}
        names = sum(times for word, times in self.mentions.items() if self.kinds[word] is Kind.NAME)
        self.name_weight = 0.7 if names <= self.mentions.total() * MANY_CAPITALS else 0.3
        return self

    def find_keys(self, words: Sequence[str]) -> frozenset[str]:
        """The words that identify a sentence's fact: exact values and names. A name that begins it does not count."""
        kinds = self.kinds
        exact = {word for word in words if kinds.get(word) is Kind.EXACT}
        return frozenset(exact.union(word for word in words[1:] if kinds.get(word) is Kind.NAME))

    def weigh(self, text: str, words: Sequence[str]) -> float:
        """Weigh a sentence or a part of one: 0 for no information, about 1 for a fact, about 3 at most.

        `words` are those of `text`, from `read_words`.
        """
        exact = names = told = 0.0
        decides = is_dense = False
        first = words[0] if words else ""
        for word in set(words):
            times = self.mentions[word] or 1
            match self.kinds.get(word, Kind.LITTLE):
                case Kind.EXACT:
                    exact += 1 / sqrt(times)
                case Kind.NAME if word != first:
                    names += 1 / sqrt(times)
                case Kind.LETTERS:
                    is_dense = True
                    told += LETTERS_WEIGHT if times <= RARE_MENTIONS else 0.0
                case Kind.WORD | Kind.NAME:
                    told += WORD_WEIGHT if times <= RARE_MENTIONS else 0.0
                case Kind.LITTLE:
                    pass
            decides = decides or word.lower() in _DECIDES
        told = min(told, MOST_WORDS) + _saturate(exact, 1.0) + _saturate(names, self.name_weight)
        if decides or (is_dense and _DECIDES_DENSE.search(text)):
            told += DECISION_WEIGHT
        return told + (QUOTED_WEIGHT if _QUOTED.search(text) else 0.0)


def _saturate(amount: float, weight: float) -> float:
    """The first of a kind counts in full; up to five more count a third each. So a list does not outweigh a fact."""
    return weight * (min(amount, 1.0) + min(max(amount - 1.0, 0.0), 5.0) / 3)


_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
MIN_WEIGHT = 0.45  # Minimum weight (facts.py) of a part of a sentence that is kept. Chosen.
LONG_CHARS = 40  # In shorter sentences only leading words are dropped. Chosen: dropping other parts would save little.

_PART = compile_late(r"(?<=[,;:]) |(?<=[，；：]) ?| (?=[—–] )")
_DENIES = compile_late(WORDS["denies"], _VERBOSE)
_LIMITS = compile_late(WORDS["limits"], _VERBOSE)
LIMIT_WEIGHT = 0.1  # Least weight of a limiting part that is kept. Chosen: only one that names nothing is dropped.
_LEAD = compile_late(WORDS["leads"], _VERBOSE)
_HEDGE = compile_late(WORDS["hedges"], _VERBOSE)
_CJK_LEAD = compile_late(WORDS["leads without spaces"], re.VERBOSE)
_DENSE = compile_late("[\u3040-\u9fff]")
_ARTICLE = compile_late(r"(?:(?<=\s)|\A)[Tt]he (?=\S)")


def shorten(sentence: str, census: Census) -> str:
    """Return the sentence without leading words and parts that carry no information; never empty.

    The result ends with a full stop or the like, or gets a semicolon, so that it can be joined to others.
    """
    parts = (
        _drop_parts([part for part in _PART.split(sentence) if part], census)
        if len(sentence) > LONG_CHARS
        else [sentence]
    )
    is_dense = _DENSE.search(sentence, 0, 200) is not None and sentence.count(" ") < len(sentence) / 12
    text = _drop_leads(("" if is_dense else " ").join(parts))
    text = _ARTICLE.sub("", text).rstrip(",;:，；： ") or sentence
    return text if text.endswith(_SENTENCE_ENDS) else text + ";"


def _drop_parts(parts: Sequence[str], census: Census) -> Sequence[str]:
    """The parts from the first to the last that carry information, and all negations and limits outside them.

    If no part carries information, all parts.
    """
    if len(parts) == 1:
        return parts
    weights = [census.weigh(part, read_words(part)) for part in parts]
    telling = [index for index, weight in enumerate(weights) if weight >= MIN_WEIGHT]
    if not telling:
        return parts
    first, last = telling[0], telling[-1]
    return [
        part
        for index, part in enumerate(parts)
        if first <= index <= last or _DENIES.search(part) or (_LIMITS.match(part) and weights[index] >= LIMIT_WEIGHT)
    ]


def _drop_leads(text: str) -> str:
    while (lead := _CJK_LEAD.match(text)) is not None and lead.end() < len(text):
        text = text[lead.end() :]
    while (lead := _LEAD.match(text)) is not None and lead.end() < len(text) and _HEDGE.search(lead[0]) is None:
        text = text[lead.end() :]
    return text


HEAD_CHARS, TAIL_CHARS = 6000, 2000
"""Characters read at the beginning and at the end of one message's text. Chosen: bounds the work."""
ALL_CHARS = 2_000_000  # The newest characters of all messages together that are read. Chosen: bounds the work.
SENTENCE_CHARS = 300  # Maximum number of characters of one statement. Chosen.
CHARS_PER_TOKEN = 8
"""Statements with this many characters for each token of the budget are looked at in detail. Chosen: about twice what
fits, as a token has about four characters."""
MIN_CHARS = 12  # Added to a length before a weight is divided by it. Chosen: short statements are not favoured.
QUESTION_SHARE, INTENT_SHARE = 0.4, 0.5
"""Factors for the weight of a question or a title, and of an announcement of what will be done next. Chosen."""
WITHIN_SHARE, MATERIAL_CHARS = 0.4, 400
"""Factor for the weight of a sentence in the middle of a user message with this many characters or more. Chosen: that
is mostly material (a page, a letter, a log). Its numbers and names would push out what the user says before or after
it: in readings of 40 turns, 3 of 10 such facts were kept in a window of 4,096 without the factor, 6 with it."""
_QUOTES = (("“", "”"), ("«", "»"), ("「", "」"), ("『", "』"))

_SIGNS = " .,;:!?…。！？-"
_FENCED = compile_late(r"(?:^|(?<=\n))[ \t]{0,3}(```|~~~).*?(?:\n[ \t]{0,3}\1|\Z)", re.DOTALL)
_END = compile_late(
    r"""[!?…][)"'”’»\]*]{0,3}\ +
    |(?<![\ (.][^\W\d_])(?<![\ (]\d)(?<![\ (]\d\d)(?<!\b(?:Mr|Dr|Nr|No|St|vs|ca))\.[)"'”’»\]*]{0,3}\ +
    |[。！？][」』”）]{0,3}""",
    re.VERBOSE,
)
"""The end of a sentence. A full stop after a single letter, a short number or a title such as `Dr` does not end one."""
_LIST = compile_late(r"(?:[-*+>•#]{1,4}|\d{1,3}[.)]) +")


class Statement(NamedTuple):
    """A sentence; `at` is the index of the newest message that contains it."""

    at: int
    text: str
    words: tuple[str, ...]


class Said(msgspec.Struct, frozen=True):
    """The sentences of one side, oldest first. A repeated sentence is listed once, at its newest place.

    `census` has the words of both sides.
    """

    role: Role
    statements: tuple[Statement, ...]
    census: Census


class Ranked(msgspec.Struct, frozen=True):
    """Statements as single lines, oldest first, and the indexes of lines in the order in which to take them."""

    lines: tuple[str, ...]
    order: tuple[int, ...]


class _Line(NamedTuple):
    weight: float
    number: int
    text: str


def find_statements(messages: Sequence[Message]) -> tuple[Said, Said]:
    found: dict[Role, dict[str, int]] = {Role.USER: {}, Role.ASSISTANT: {}}
    times: Counter[str] = Counter()
    census = Census()
    left = ALL_CHARS
    for at in range(len(messages) - 1, -1, -1):
        places = found.get(messages[at].role)
        if places is None or left < 0:
            continue
        acts = bool(messages[at].tool_calls)
        sentences = split_sentences(messages[at].text)
        if places is found[Role.USER]:
            census.asked.update(_find_asked(sentences))
            census.within.update(one for one in _find_material(sentences) if not gives_reason(one))
        for sentence in sentences[::-1]:
            left -= len(sentence)
            if acts and GOES_ON.match(sentence) and not gives_reason(sentence):
                continue  # it announces a call, which the digest lists anyway
            times[sentence] += 1
            places.setdefault(sentence, at)
    words = {sentence: read_words(sentence) for sentence in times}
    for sentence, number in times.items():
        census.add(words[sentence], number)
    census.finish()
    users, assistants = (
        Said(role, tuple(Statement(at, text, words[text]) for text, at in reversed(places.items())), census)
        for role, places in found.items()
    )
    return users, assistants


def _find_material(sentences: Sequence[str]) -> Sequence[str]:
    """The sentences of a user message that are probably not the user's own words: the middle of a long one."""
    if sum(map(len, sentences)) < MATERIAL_CHARS:
        return ()
    quotes = sentences[0].count('"') % 2 or any(
        sentences[0].count(one) > sentences[0].count(end) for one, end in _QUOTES
    )
    return sentences[0 if quotes else 1 : -1]


def _find_asked(sentences: Sequence[str]) -> Iterator[str]:
    for before, sentence in zip(("", *sentences), sentences, strict=False):
        asks = None if sentence.endswith(("?", "？")) else _KEEP.search(sentence)
        if asks is not None:
            says_more = asks["only"] is None or ". " in sentence[: asks.start()]
            yield sentence if says_more else before


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
    weight = census.weigh(text, statement.words) + (ASKED_WEIGHT if text in census.asked else 0.0)
    if text.endswith(("?", "？", ":", "：")):
        weight *= QUESTION_SHARE
    if text in census.within and text not in census.asked:
        weight *= WITHIN_SHARE
    return weight * INTENT_SHARE if GOES_ON.match(text) else weight


def _width(text: str) -> int:
    """The approximate cost of a text, in units of one ASCII character."""
    return len(text) if text.isascii() else sum(4 if "\u3040" <= char <= "\uffef" else 1 for char in text)
