"""The order of the rules: plan() decides, apply() carries out.

Law: pure. Between the two stands the shell's only wait: the text of `plan.request`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rules.conversation import (
    HEAD_ROLES,
    RESULT_ROLES,
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    split_steps,
)
from rules.pairing import pair_tool_calls
from rules.policy import OnExceeded, Policy
from rules.prune import prune_tool_results
from rules.summarise import MIN_TEXT_TOKENS, Summary, SummaryRequest, make_digest, request_summary, splice_summary
from rules.truncate import Memo, truncate_text, truncate_tool_results
from rules.window import Window, replay_cut


class LimitExceededError(ValueError):
    """Nothing could bring the request within its limit, and the policy says to refuse it."""

    def __init__(self, original_tokens: int, tokens: int, limit: int, decisions: Sequence[Decision]) -> None:
        super().__init__(f"{tokens} prompt tokens after compaction, limit {limit}")
        self.original_tokens = original_tokens
        self.tokens = tokens
        self.limit = limit
        self.decisions = tuple(decisions)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one request.

    `original` is the client's transcript; `conversation` the same after the rules that need no window. `request` is
    the text to get before `apply`, None where nothing was cut.
    """

    original: Conversation
    conversation: Conversation
    window: Window
    request: SummaryRequest | None
    decisions: tuple[Decision, ...]
    limit: int


def plan(
    conversation: Conversation,
    policy: Policy,
    *,
    count: CountTokens,
    request_max_tokens: int | None = None,
    memo: Memo | None = None,
) -> Plan:
    """Decide everything about one request; `request_max_tokens` is the completion that it asks for."""
    limit = policy.limit_tokens(request_max_tokens)
    paired = pair_tool_calls(conversation, count=count)
    short = truncate_tool_results(paired.conversation, budget=policy.result_budget, count=count, memo=memo)
    current = short.conversation
    window = replay_cut(current.messages, fixed_tokens=current.fixed_tokens, limit=limit, policy=policy)
    # The span is read from the paired transcript, whose texts are whole but for truncation.
    request = request_summary(current.messages, window)
    return Plan(conversation, current, window, request, (*paired.decisions, *short.decisions), limit)


def apply(plan: Plan, policy: Policy, *, count: CountTokens, summary: Summary | None = None) -> Outcome:
    """Carry the plan out; `summary` is what `plan.request` asked for, None for the digest.

    Raises LimitExceededError where the policy refuses what cannot fit.
    """
    window = plan.window
    decisions = plan.decisions
    start = window.cut.at if window.cut else 0
    pruned = prune_tool_results(plan.conversation, start=start, stop=window.prune_stop, count=count)
    decisions += pruned.decisions
    current = pruned.conversation
    if window.cut is not None and plan.request is not None:
        if summary is None:
            summary = Summary(make_digest(plan.request, count=count), by_model=False)
        spliced = splice_summary(current, window=window, summary=summary, count=count)
        decisions += spliced.decisions
        current = spliced.conversation
    if current.tokens > plan.limit:
        exceeded = _exceed(current, plan, policy, decisions, count)
        decisions += exceeded.decisions
        current = exceeded.conversation
    return Outcome(plan.original if not decisions else current, decisions)


def _exceed(
    conversation: Conversation, plan: Plan, policy: Policy, decisions: Sequence[Decision], count: CountTokens
) -> Outcome:
    """Rung 8: what is done with a request that is over its limit still."""
    if policy.on_exceeded is OnExceeded.FORWARD or not conversation.messages:
        return Outcome(conversation)
    if policy.on_exceeded is OnExceeded.TRUNCATE:
        shortened = _truncate_open_step(conversation, plan.limit, count)
        if shortened.conversation.tokens <= plan.limit:
            return shortened
    raise LimitExceededError(plan.original.tokens, conversation.tokens, plan.limit, decisions)


def _truncate_open_step(conversation: Conversation, limit: int, count: CountTokens) -> Outcome:
    """The largest texts of the last message and of the results beside it, head and tail each, until the whole fits."""
    messages = list(conversation.messages)
    start = split_steps(messages)[-1].start
    last = len(messages) - 1
    open_step = [index for index in range(start, last) if messages[index].role in RESULT_ROLES]
    if messages[last].role not in HEAD_ROLES:
        open_step.append(last)
    excess = conversation.tokens - limit
    changed: list[int] = []
    for index in sorted(open_step, key=lambda index: -messages[index].tokens):
        short = _truncate_largest(messages[index], excess, count)
        if short is not messages[index]:
            excess -= messages[index].tokens - short.tokens
            messages[index] = short
            changed.append(index)
        if excess <= 0:
            break
    if not changed:
        return Outcome(conversation)
    outcome = Conversation(tuple(messages), conversation.fixed_tokens)
    reason = "largest texts of the last step"
    decision = Decision("exceeded", reason, conversation.tokens, outcome.tokens, len(changed), min(changed))
    return Outcome(outcome, (decision,))


def _truncate_largest(message: Message, excess: int, count: CountTokens) -> Message:
    """The message with its largest text shorter by `excess` tokens, or by as much as leaves something of it."""
    sizes = [count(text) for text in message.texts]
    if not sizes or max(sizes) <= MIN_TEXT_TOKENS:
        return message
    largest = sizes.index(max(sizes))
    text = truncate_text(message.texts[largest], max(sizes[largest] - excess, MIN_TEXT_TOKENS), count)
    saved = sizes[largest] - count(text)
    if saved <= 0:
        return message
    texts = (*message.texts[:largest], text, *message.texts[largest + 1 :])
    return replace(message, texts=texts, tokens=message.tokens - saved, edited=True)
