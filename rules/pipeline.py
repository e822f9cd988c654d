"""The order of the rules: plan() decides, apply() carries out.

Law: pure. Between the two stands the shell's only wait: the text of `plan.request`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rules.conversation import Conversation, CountTokens, Decision, Outcome
from rules.pairing import pair_tool_calls
from rules.policy import OnExceeded, Policy
from rules.prune import prune_tool_results
from rules.summarise import SummaryRequest, make_digest, request_summary, splice_summary
from rules.truncate import Memo, truncate_text, truncate_tool_results
from rules.window import CutKind, Window, replay_cut


class LimitExceededError(ValueError):
    """Nothing could bring the request within its limit, and the policy says to refuse it."""

    def __init__(self, tokens: int, limit: int, decisions: Sequence[Decision]) -> None:
        super().__init__(f"{tokens} prompt tokens after compaction, limit {limit}")
        self.tokens = tokens
        self.limit = limit
        self.decisions = tuple(decisions)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one request.

    `original` is the client's transcript; `conversation` the same after the rules that need no window. `request` is
    the summary to get before `apply`, None where the digest or nothing at all will stand.
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
    asks = window.cut is not None and window.cut.kind is CutKind.SUMMARISE
    # The span is read from the paired transcript, whose texts are whole but for truncation.
    request = request_summary(current.messages, window) if asks else None
    return Plan(conversation, current, window, request, (*paired.decisions, *short.decisions), limit)


def apply(plan: Plan, policy: Policy, *, count: CountTokens, summary: str | None = None) -> Outcome:
    """Carry the plan out; `summary` is the text that `plan.request` asked for, None for the digest.

    Raises LimitExceededError where the policy refuses what cannot fit.
    """
    window = plan.window
    decisions = plan.decisions
    start = window.cut.at if window.cut else 0
    pruned = prune_tool_results(plan.conversation, start=start, stop=window.prune_stop, count=count)
    decisions += pruned.decisions
    current = pruned.conversation
    if window.cut is not None:
        text = summary
        if text is None:
            window = _as_digest(window)
            wanted = request_summary(plan.conversation.messages, window)
            text = make_digest(wanted, count=count) if wanted else ""
        spliced = splice_summary(current, window=window, text=text, count=count)
        decisions += spliced.decisions
        current = spliced.conversation
    if current.tokens > plan.limit:
        exceeded = _exceed(current, plan.limit, policy, decisions, count)
        decisions += exceeded.decisions
        current = exceeded.conversation
    return Outcome(plan.original if not decisions else current, decisions)


def _as_digest(window: Window) -> Window:
    cuts = (*window.cuts[:-1], replace(window.cuts[-1], kind=CutKind.DIGEST))
    return replace(window, cuts=cuts)


def _exceed(
    conversation: Conversation, limit: int, policy: Policy, decisions: Sequence[Decision], count: CountTokens
) -> Outcome:
    """Rung 8: what is done with a request that is over its limit still."""
    if policy.on_exceeded is OnExceeded.FORWARD or not conversation.messages:
        return Outcome(conversation)
    if policy.on_exceeded is OnExceeded.TRUNCATE:
        shortened = _truncate_last(conversation, limit, count)
        if shortened.conversation.tokens <= limit:
            return shortened
    raise LimitExceededError(conversation.tokens, limit, decisions)


def _truncate_last(conversation: Conversation, limit: int, count: CountTokens) -> Outcome:
    """The largest text of the last message, head and tail, so that the whole fits."""
    last = conversation.messages[-1]
    if not last.texts:
        return Outcome(conversation)
    sizes = [count(text) for text in last.texts]
    largest = sizes.index(max(sizes))
    allowed = sizes[largest] - (conversation.tokens - limit)
    if allowed <= 0:
        return Outcome(conversation)
    text = truncate_text(last.texts[largest], allowed, count)
    texts = (*last.texts[:largest], text, *last.texts[largest + 1 :])
    saved = sizes[largest] - count(text)
    short = replace(last, texts=texts, tokens=last.tokens - saved, edited=True)
    outcome = Conversation((*conversation.messages[:-1], short), conversation.fixed_tokens)
    index = len(conversation.messages) - 1
    decision = Decision("exceeded", "largest text of the last message", conversation.tokens, outcome.tokens, 1, index)
    return Outcome(outcome, (decision,))
