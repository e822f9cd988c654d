"""What brings a text to a budget of tokens in this process: ours, and what most agents do.

Law: a contestant sees the text, its call and the budget, never the facts.
"""

from collections.abc import Callable, Mapping
from functools import cache

from ours import is_reading, tidy_worthwhile, truncate_ours
from tool_outputs import Output

from proxy.compaction.tokenizers.exact import count_pieces, load_encoding, make_counter
from rules.conversation import CountTokens
from rules.text.head_tail import truncate_text
from rules.tokens.families import O200K

CHARS_PER_TOKEN = 4
"""What agents take a token for that count none."""
MAX_CHARS_PER_TOKEN = 128
"""No token of the vocabulary is longer."""

Shorten = Callable[[Output, int], str]
"""The text of an output within a limit of tokens, or what a contestant makes of that limit."""


@cache
def load_counter() -> CountTokens:
    """Exact counts in the vocabulary of the budgets, remembered."""
    return make_counter(count_pieces(load_encoding(O200K)))


def shorten_ours(output: Output, limit_tokens: int) -> str:
    """Tidied, then truncated where it still does not fit: as the proxy does it."""
    is_file = is_reading(output.call) if output.call else output.is_file
    tidied = tidy_worthwhile(output.text, limit_tokens, load_counter(), is_file=is_file)
    return truncate_ours(tidied, limit_tokens, load_counter(), output.call)


def shorten_untidied(output: Output, limit_tokens: int) -> str:
    """Ours without the tidying."""
    return truncate_ours(output.text, limit_tokens, load_counter(), output.call)


def take_head_tail(text: str, limit_tokens: int) -> str:
    """Head and tail, exact to the token."""
    return truncate_text(text, limit_tokens, load_counter())


def take_by_chars(text: str, limit_tokens: int) -> str:
    """Half of the characters from each end, four for a token. What comes out may cost more or less than the limit."""
    half = limit_tokens * CHARS_PER_TOKEN // 2
    missing = len(text) - 2 * half
    return text if missing <= 0 else f"{text[:half]}\n... [{missing} characters truncated] ...\n{text[-half:]}"


def take_head(text: str, limit_tokens: int) -> str:
    """The longest beginning within the limit, found by halving."""
    count = load_counter()
    low, high = 0, min(len(text), limit_tokens * MAX_CHARS_PER_TOKEN)
    if count(text[:high]) <= limit_tokens:
        return text[:high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(text[:middle]) <= limit_tokens else (low, middle)
    return text[:low]


OURS = "trimtab"
SHORTENERS: Mapping[str, Shorten] = {
    "head": lambda output, limit_tokens: take_head(output.text, limit_tokens),
    "head and tail, by characters": lambda output, limit_tokens: take_by_chars(output.text, limit_tokens),
    "head_tail": lambda output, limit_tokens: take_head_tail(output.text, limit_tokens),
    f"{OURS}, not tidied": shorten_untidied,
    OURS: shorten_ours,
}
