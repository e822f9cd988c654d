"""The rules on tool results, one at a time, on a whole transcript or on one text.

Law: it uses only the editors of the product, and calls them as `rules/pipeline` does.
"""

from collections.abc import Sequence

from trimtab.rules.conversation import Conversation, CountTokens, Message, Outcome, Role, ToolCall, count_leading
from trimtab.rules.policy import Budget, Policy, Treatment
from trimtab.rules.results.excerpt import TRUNCATE, truncate_result
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.results.work import Editor, Edits, Result, Work


def edit_results(conversation: Conversation, policy: Policy, editors: Sequence[Editor], work: Work) -> Outcome:
    """Apply editors to every result, one editor after the other. Raises LargeWorkError."""
    edits = Edits(count_leading(conversation.messages), editors)
    edits.extend(conversation.messages, policy, work)
    return edits.apply(conversation)


def tidy_tool_results(conversation: Conversation, *, policy: Policy, work: Work) -> Outcome:
    """Tidy every tool result that is not exempt."""
    return edit_results(conversation, policy, (TIDY,), work)


def truncate_tool_results(conversation: Conversation, *, policy: Policy, work: Work) -> Outcome:
    """Truncate every tool result over its budget that is not exempt."""
    return edit_results(conversation, policy, (TRUNCATE,), work)


def shorten_text(text: str, limit: int, count: CountTokens, *, call: ToolCall | None = None) -> str:
    """The shortened text of a result, at most `limit` tokens; the same text if it fits."""
    budget = Budget(limit)
    (short,) = truncate_result(Result(Message(Role.TOOL, (text,)), call, Treatment(budget)), budget, count)
    return short
