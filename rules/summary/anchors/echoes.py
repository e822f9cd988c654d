"""Lines of the removed part that speak of what the tail speaks of: whoever goes on there is likely to need them.

Law: a function of both texts. A line counts only if it tells a name or a number, and if it shares a word with the tail
that few lines have. Linear in the removed part, of which the newest characters are read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import fsum, sqrt

from rules.conversation import Message, Role
from rules.summary.anchors.mentions import read_arguments
from rules.summary.anchors.names import find_names
from rules.summary.quoting import quote_line

READ_CHARS = 1_000_000
"""Of the removed part, the newest; a tail is shorter."""
MIN_LINE_CHARS = 8
LINE_CHARS = 400
"""Of a line; sentences end one, too. Longer ones are data, which holds every word."""
SHOWN_CHARS = 160
MOST_TOLD = 256
"""Lines, the best ones."""
MOST_LINES = 6
"""A word in more different lines than that tells nothing of any of them."""

_WORD = re.compile(r"[^\W\d_][\w-]{3,63}+")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n")
_NUMBER = re.compile(r"\d{2,}")


def find_echoes(removed: Sequence[Message], tail: Sequence[Message], present: AbstractSet[str]) -> tuple[str, ...]:
    """Such lines, those first that share most of the rarest words for their length, the newest of equal ones.

    Names that are `present` count for nothing.
    """
    wanted = frozenset(word for message in tail if message.role is not Role.TOOL for word in _find_words(_say(message)))
    shared: dict[str, frozenset[str]] = {}
    last: dict[str, int] = {}
    times: Counter[str] = Counter()
    for index, line in enumerate(_find_lines(removed)):
        if line not in shared:
            shared[line] = wanted & _find_words(line)
            times.update(shared[line])
        last[line] = index
    scores = {
        line: score
        for line, words in shared.items()
        if (score := _score(line, words, times)) and (find_names(line) - present or _NUMBER.search(line))
    }
    told = sorted(scores, key=lambda line: (-scores[line], -last[line]))
    return tuple(quote_line(line, SHOWN_CHARS) for line in told[:MOST_TOLD])


def _score(line: str, words: AbstractSet[str], times: Mapping[str, int]) -> float:
    # Summed exactly: a set has no order, and every replica must come to the same.
    shared = fsum(_weigh(word) / times[word] for word in words if times[word] <= MOST_LINES)
    return shared / sqrt(len(line))


def _weigh(word: str) -> float:
    """What is put together of several words, or has digits, is rarer than a word of the language."""
    return 1.0 if word.isalpha() else 2.0


def _say(message: Message) -> str:
    return "\n".join((*message.texts, *read_arguments(message.tool_calls)))


def _find_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _find_lines(messages: Sequence[Message]) -> Iterator[str]:
    """The lines and sentences of the newest messages, oldest first."""
    left, start = READ_CHARS, len(messages)
    while start and left > 0:
        start -= 1
        left -= sum(map(len, messages[start].texts))
    for message in messages[start:]:
        if message.role is not Role.SYSTEM:
            for line in _SENTENCE_END.split(message.text[-READ_CHARS:]):
                stripped = line.strip()
                if MIN_LINE_CHARS <= len(stripped) <= LINE_CHARS:
                    yield stripped
