"""Rung 1: a tool result loses what carries no information.

Law: depends only on the result and its own call, never on its age or its position. So the forwarded prefix does not
change.
"""

from collections.abc import Sequence

from rules.conversation import CountTokens, Message, Telling
from rules.results.calls import Place
from rules.results.edit import Editor, Result
from rules.results.tidy.text import tidy_text
from rules.results.tools.arguments import reads_json_file
from rules.text.head_tail import measure_bytes
from rules.treatment import Budget

MIN_CHARS = 160
"""A result of at most this length stays unchanged. Chosen: it has about 40 tokens, so there is little to save."""


def _tidy(result: Result, count: CountTokens) -> tuple[str, ...]:
    texts, tidying, budget = result.message.texts, result.treatment.tidying, result.treatment.budget
    if tidying is None:
        return texts

    def fits(text: str) -> bool:
        # An error has the larger budget. `is_error` is slow, so it is asked only if the two budgets differ in effect.
        if _fits_share(text, budget, len(texts), count):
            return True
        return _fits_share(text, budget.for_error(), len(texts), count) and result.is_error

    def is_file() -> bool:
        return result.call is not None and reads_json_file(result.call)

    return tuple(tidy_text(text, tidying, is_file=is_file, fits=fits) for text in texts)


def _fits_share(text: str, budget: Budget, texts: int, count: CountTokens) -> bool:
    """Whether a text fits its equal share of a budget for `texts` texts."""
    max_bytes = budget.max_bytes
    if max_bytes is not None and measure_bytes(text) > max_bytes // texts:
        return False
    return count(text) <= budget.max_tokens // texts


def _wants(messages: Sequence[Message], places: Sequence[Place]) -> list[Place]:
    return [
        place
        for place in places
        if place.treatment.tidying is not None and sum(map(len, messages[place.at].texts)) > MIN_CHARS
    ]


def _describe(number: int) -> str:
    return f"{number} tool results tidied"


_TELLING = Telling(
    "tool result",
    "{what} {was} tidied, {saved}: colours, old states of progress bars, and blanks and repeated keys in JSON"
    " went{hidden}.",
)
TIDY = Editor("tidy", _wants, _tidy, _describe, _TELLING)
