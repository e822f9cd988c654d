"""How much a piece of text tells: what a reader who lacks it could not guess.

Law: by signs that most languages share (digits, identifiers, quotations, names, rare words), with a few words of
decision in some of them. Linear in the text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import sqrt

_TOKEN = re.compile(
    r"[^\s,;!?()\[\]{}<>\"'`“”„«»|\u2026\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]+"
    r"|[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2}"
)
"""A word; of scripts without blanks two letters."""
_ENDS = ".:*_-"
_EXACT = re.compile(r"\d|\w[_/@\\=]\w|[a-z][A-Z]|\w\.\w|[a-z]{2}-[a-z]{2,20}-[a-z]{2}")
_QUOTED = re.compile(r"`[^`]{1,80}`|[\"“„«][^\"“”»]{2,60}[\"”“»]|「[^」]{1,40}」|《[^》]{1,40}》|“[^”]{1,40}”")
_DECIDES = re.compile(
    r"""\b(?:decid\w+|agreed|cho(?:se|sen|ose)|(?:will|shall)\ use|go(?:ing)?\ with|instead\ of|because|must|never|always
    |prefers?|preferred|do(?:n't|\ not)|responsible|renamed|root\ cause|caused\ by|fixed|allerg\w+
    |entschieden|beschlossen|anstatt|weil|muss|müssen|nie|niemals|immer|lieber|zuständig
    |décid\w+|toujours|jamais|parce\ que|siempre|nunca|porque|sempre|perché|решил\w*|всегда|никогда|потому)\b
    |决定|決定|必须|必須|不要|总是|因为|因為|改到|负责|負責|喜欢|結論|決め""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words of decisions, rules and preferences."""
RARE_MENTIONS = 2
"""A word that stands in no more sentences is rare."""
MANY_CAPITALS = 0.15
"""Of the words within sentences. With more capitals than that a language writes them for all nouns."""


class Kind(Enum):
    """What a word looks like."""

    EXACT = 0
    NAME = 1
    WORD = 2
    LETTERS = 3
    """Two letters of a script without blanks."""
    LITTLE = 4


def read_words(text: str) -> tuple[str, ...]:
    """The words of a text, in order."""
    return tuple(word.strip(_ENDS) for word in _TOKEN.findall(text))


def find_kind(word: str) -> Kind:
    """What a word looks like, wherever it stands."""
    if _EXACT.search(word):
        return Kind.EXACT
    if word[:1] >= "\u3040":
        return Kind.LETTERS
    if word[:1].isupper() and len(word) > 1:
        return Kind.NAME
    return Kind.WORD if len(word) > 3 else Kind.LITTLE


@dataclass(slots=True)
class Census:
    """In how many sentences each word stands, and how common names are."""

    mentions: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Kind] = field(default_factory=dict)
    names: int = 0
    words: int = 0

    def add(self, words: Sequence[str]) -> None:
        """Go on by a sentence."""
        self.mentions.update(set(words))
        for word in words[1:]:
            kind = self.kind(word)
            self.names += kind is Kind.NAME
            self.words += 1

    def kind(self, word: str) -> Kind:
        """What a word looks like, remembered."""
        known = self.kinds.get(word)
        if known is None:
            known = self.kinds[word] = find_kind(word)
        return known

    @property
    def name_weight(self) -> float:
        """What a name counts: little if each noun looks like one."""
        return 0.7 if self.names <= self.words * MANY_CAPITALS else 0.3

    def find_keys(self, words: Sequence[str]) -> frozenset[str]:
        """The words of a sentence that a fact hangs on: exact ones, and names but for its first word."""
        exact = {word for word in words if self.kind(word) is Kind.EXACT}
        return frozenset(exact.union(word for word in words[1:] if self.kind(word) is Kind.NAME))

    def weigh(self, text: str, words: Sequence[str]) -> float:
        """How much a sentence, or a part of one, tells: 0 for nothing, about 1 for a fact, about 3 for the most."""
        exact = self._sum(word for word in set(words) if self.kind(word) is Kind.EXACT)
        names = self._sum(word for word in set(words[1:]) if self.kind(word) is Kind.NAME)
        rare = {word for word in words if self.mentions[word] <= RARE_MENTIONS}
        letters = sum(self.kind(word) is Kind.LETTERS for word in rare)
        told = _saturate(exact, 1.0) + _saturate(names, self.name_weight)
        told += min(0.12 * sum(self.kind(word) is Kind.WORD for word in rare) + 0.08 * letters, 0.6)
        told += 0.5 if _DECIDES.search(text) else 0.0
        return told + (0.3 if _QUOTED.search(text) else 0.0)

    def _sum(self, words: Iterable[str]) -> float:
        return sum(1 / sqrt(max(self.mentions[word], 1)) for word in words)


def _saturate(amount: float, weight: float) -> float:
    """The first of a kind counts in full, further ones a third, five at most."""
    return weight * (min(amount, 1.0) + min(max(amount - 1.0, 0.0), 5.0) / 3)
