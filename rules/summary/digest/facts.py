"""Weigh how much information a piece of text carries: facts that a reader without it could not guess.

Law: the weight depends on signs that most languages share (digits, identifiers, quotations, names, rare words), and on
a few words of decision in some languages. Linear in the text.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import sqrt

_TOKEN = re.compile(
    r"[^\s,;!?()\[\]{}<>\"`“”„«»|\u2026\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]+"
    r"|[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2}"
)
"""A word; in scripts without spaces, a pair of letters."""
_ENDS = ".:*_-'"
_EXACT = re.compile(r"\d|\w[_/@\\=]\w|[a-z][A-Z]|\w\.\w|[a-z]{2}-[a-z]{2,20}-[a-z]{2}")
_QUOTED = re.compile(r"`[^`]{1,80}`|[\"“„«][^\"“”»]{2,60}[\"”“»]|「[^」]{1,40}」|《[^》]{1,40}》|“[^”]{1,40}”")
_DECIDES = frozenset(
    [
        "decide",
        "decided",
        "decides",
        "decision",
        "agreed",
        "chose",
        "chosen",
        "choose",
        "instead",
        "because",
        "must",
        "never",
        "always",
        "prefer",
        "prefers",
        "preferred",
        "don't",
        "responsible",
        "renamed",
        "caused",
        "fixed",
        "allergic",
        "entschieden",
        "beschlossen",
        "anstatt",
        "weil",
        "muss",
        "müssen",
        "nie",
        "niemals",
        "immer",
        "lieber",
        "zuständig",
        "décidé",
        "toujours",
        "jamais",
        "parce",
        "siempre",
        "nunca",
        "porque",
        "sempre",
        "perché",
        "решил",
        "решили",
        "всегда",
        "никогда",
        "потому",
    ]
)
_DECIDES_DENSE = re.compile("决定|決定|必须|必須|不要|总是|总要|因为|因為|改到|负责|負責|喜欢|結論|決め")
"""Words of decisions, rules and preferences; the second pattern has those of scripts without spaces."""
DECISION_WEIGHT, QUOTED_WEIGHT = 0.35, 0.3
"""Added to a sentence that decides something, or that quotes something. Chosen, as all weights here. For comparison: an
exact word counts 1, a name 0.7."""
WORD_WEIGHT, LETTERS_WEIGHT, MOST_WORDS = 0.12, 0.08, 0.6
"""Added for each rare word or rare pair of letters, and the most for all of them together. Chosen."""
RARE_MENTIONS = 2
"""A word that was said at most this often is rare. Chosen."""
MANY_CAPITALS = 0.25
"""If more than this share of all words looks like a name, the language writes all nouns with a capital, as German does.
A capital then means less. Chosen."""


class Kind(Enum):
    """The form of a word. `EXACT` is an identifier, a number or a path; `LITTLE` is a short word."""

    EXACT = 0
    NAME = 1
    WORD = 2
    LETTERS = 3
    """A pair of letters of a script without spaces."""
    LITTLE = 4


def read_words(text: str) -> tuple[str, ...]:
    """Return the words of a text, in order."""
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


def gives_reason(text: str) -> bool:
    """Whether a sentence decides something or gives a reason."""
    return not _DECIDES.isdisjoint(text.lower().split()) or _DECIDES_DENSE.search(text) is not None


@dataclass(slots=True)
class Census:
    """How often each word was said, and its form. First `add` all sentences, then `finish`, then read."""

    mentions: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Kind] = field(default_factory=dict)
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
