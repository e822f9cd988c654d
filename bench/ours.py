"""What the proxy does with a tool result, as the bench calls it.

Law: the only place in the bench that knows how the rules are called.
"""

from collections.abc import Mapping
from dataclasses import fields, replace

from rules.conversation import Conversation, CountTokens, ToolCall
from rules.results.dedupe import dedupe_tool_results
from rules.results.edit import MIN_SAVED_SHARE
from rules.results.excerpt.rule import shorten_text
from rules.results.tidy.text import tidy_text
from rules.results.tools.arguments import reads_file
from rules.results.work import Work
from rules.treatment import Tidying

DEFAULT_BUDGET_TOKENS = 4000


def list_switches() -> Mapping[str, Tidying]:
    """By name, the tidying with that one thing switched off; all of it by the name ''."""
    whole = Tidying()
    names = [field.name for field in fields(Tidying) if getattr(whole, field.name) is True]
    return {"": whole, **{name: replace(whole, **{name: False}) for name in names}}


def tidy_ours(
    text: str, limit_tokens: int, count: CountTokens, *, is_file: bool = False, tidying: Tidying | None = None
) -> str:
    """Tidied for a budget, with everything switched on where `tidying` does not say otherwise."""
    return tidy_text(text, tidying or Tidying(), is_file=is_file, fits=lambda short: count(short) <= limit_tokens)


def tidy_worthwhile(
    text: str, limit_tokens: int, count: CountTokens, *, is_file: bool = False, tidying: Tidying | None = None
) -> str:
    """The same, but the text as it came where too little would be saved."""
    tidied = tidy_ours(text, limit_tokens, count, is_file=is_file, tidying=tidying)
    return tidied if tidied is not text and count(tidied) <= count(text) * (1 - MIN_SAVED_SHARE) else text


def is_reading(call: ToolCall | None) -> bool:
    """Whether a call reads a file whose text may be copied into an edit."""
    return call is not None and reads_file(call)


def truncate_ours(text: str, limit_tokens: int, count: CountTokens, call: ToolCall | None = None) -> str:
    """Truncated where it is over the limit, with what is known of the call."""
    return shorten_text(text, limit_tokens, count, call=call)


def dedupe_ours(conversation: Conversation, count: CountTokens) -> Conversation:
    """Results that repeat others of the whole transcript point to them."""
    return dedupe_tool_results(conversation, start=0, work=Work(count)).conversation
