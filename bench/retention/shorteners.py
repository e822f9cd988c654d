"""The ways to shorten a text to a budget of tokens in this process: trimtab's rules, and what most agents do.

Law: the only module of the bench that knows how the rules for tool results are called.
"""

from collections.abc import Callable, Mapping
from functools import cache

from msgspec.structs import replace

from bench.harness.counting import load_encoding, make_counter
from bench.material.tool_outputs import Output
from trimtab.rules.conversation import Conversation, CountTokens, Message, Role, ToolCall
from trimtab.rules.policy import Budget, Policy, Tidying, Treatment
from trimtab.rules.results.calls import reads_json_file
from trimtab.rules.results.dedupe import dedupe_tool_results
from trimtab.rules.results.excerpt import truncate_result
from trimtab.rules.results.tidy import tidy_text
from trimtab.rules.results.work import MIN_SAVED_SHARE, Result, Work
from trimtab.rules.text.head_tail import truncate_text
from trimtab.rules.text.markers import READ_PART

DEFAULT_BUDGET_TOKENS = 4000
CHARS_PER_TOKEN = 4
"""Source: the usual estimate of agents that do not count tokens."""
MAX_CHARS_PER_TOKEN = 128
"""No token of the vocabulary is longer."""

Shorten = Callable[[Output, int], str]
"""The text of an output within a limit of tokens; a contestant may exceed it."""


@cache
def load_counter() -> CountTokens:
    """Exact, remembered counts in the vocabulary of the budgets."""
    return make_counter(load_encoding())


def list_switches() -> Mapping[str, Tidying]:
    """The tidying with one switch off, by the switch's name; `''` is tidying with all switches on."""
    whole = Tidying()
    names = [name for name in Tidying.__struct_fields__ if getattr(whole, name) is True]
    return {"": whole, **{name: replace(whole, **{name: False}) for name in names}}


def tidy_ours(
    text: str, limit_tokens: int, count: CountTokens, *, is_file: bool = False, tidying: Tidying | None = None
) -> str:
    """Tidy for a budget, with all switches on unless `tidying` says otherwise."""
    switches = tidying or Tidying()
    return tidy_text(text, switches, is_file=lambda: is_file, fits=lambda short: count(short) <= limit_tokens)


def tidy_worthwhile(
    text: str, limit_tokens: int, count: CountTokens, *, is_file: bool = False, tidying: Tidying | None = None
) -> str:
    """Tidy, but return the original text if too little would be saved."""
    tidied = tidy_ours(text, limit_tokens, count, is_file=is_file, tidying=tidying)
    return tidied if tidied is not text and count(tidied) <= count(text) * (1 - MIN_SAVED_SHARE) else text


def is_reading(call: ToolCall | None) -> bool:
    """Whether a call reads a file whose text may be copied into an edit."""
    return call is not None and reads_json_file(call)


def truncate_ours(text: str, limit_tokens: int, count: CountTokens, call: ToolCall | None = None) -> str:
    """Truncate if the text is over the limit, using what is known of the call."""
    budget = Budget(limit_tokens)
    (short,) = truncate_result(Result(Message(Role.TOOL, (text,)), call, Treatment(budget)), budget, count)
    return short


def dedupe_ours(conversation: Conversation, count: CountTokens) -> Conversation:
    """Replace results that repeat others of the whole transcript by pointers to them."""
    return dedupe_tool_results(conversation, Policy(), start=0, work=Work(count)).conversation


def shorten_ours(output: Output, limit_tokens: int) -> str:
    """Tidy, then truncate if the text is still over the limit, as the proxy does."""
    is_file = is_reading(output.call) if output.call else output.is_file
    tidied = tidy_worthwhile(output.text, limit_tokens, load_counter(), is_file=is_file)
    return truncate_ours(tidied, limit_tokens, load_counter(), output.call)


def shorten_untidied(output: Output, limit_tokens: int) -> str:
    """Trimtab's truncation without tidying."""
    return truncate_ours(output.text, limit_tokens, load_counter(), output.call)


def take_head_tail(text: str, limit_tokens: int) -> str:
    """Head and tail, exact to the token."""
    return truncate_text(text, limit_tokens, load_counter(), how=READ_PART)


def take_by_chars(text: str, limit_tokens: int) -> str:
    """Half of the characters from each end, four characters a token. The result may be over or under the limit."""
    half = limit_tokens * CHARS_PER_TOKEN // 2
    missing = len(text) - 2 * half
    return text if missing <= 0 else f"{text[:half]}\n... [{missing} characters truncated] ...\n{text[-half:]}"


def take_head(text: str, limit_tokens: int) -> str:
    """The longest beginning within the limit, found by bisection."""
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
