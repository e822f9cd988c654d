"""Rung 1: a tool result loses what says nothing.

Law: by the result and its own call alone, never by its age or its place, so the forwarded prefix stays as it is.
"""

from dataclasses import replace

from rules.calls import reads_file
from rules.conversation import Conversation, CountTokens, Message, Outcome
from rules.head_tail import measure_bytes
from rules.policy import Policy
from rules.results import Editor, Result, Work, edit_results
from rules.tidy import tidy_text
from rules.treatment import Budget, Treatment

MIN_CHARS = 160
"""Some 40 tokens. A shorter result is left alone: it has nothing to lose."""


def tidy_tool_results(conversation: Conversation, *, policy: Policy, work: Work) -> Outcome:
    """Tidy every tool result that is not exempt. Raises LargeWorkError where `work` does not allow for so much."""

    def edit(result: Result) -> tuple[str, ...]:
        return _tidy(result, work.count)

    outcome, changed = edit_results(conversation, policy, Editor("tidy", _wants, edit), work)
    if not changed:
        return outcome
    reason = f"{len(changed)} tool results tidied"
    return replace(outcome, decisions=(replace(outcome.decisions[0], reason=reason),))


def _wants(message: Message, treatment: Treatment) -> bool:
    return treatment.tidying is not None and sum(map(len, message.texts)) > MIN_CHARS


def _tidy(result: Result, count: CountTokens) -> tuple[str, ...]:
    texts, tidying, budget = result.message.texts, result.treatment.tidying, result.budget
    if tidying is None:
        return texts
    share = Budget(
        budget.max_tokens // len(texts), None if budget.max_bytes is None else budget.max_bytes // len(texts)
    )

    def fits(text: str) -> bool:
        return (share.max_bytes is None or measure_bytes(text) <= share.max_bytes) and count(text) <= share.max_tokens

    is_file = result.call is not None and reads_file(result.call)
    return tuple(tidy_text(text, tidying, is_file=is_file, fits=fits) for text in texts)
