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
    count_leading,
    split_steps,
)
from rules.dedupe import Memos, dedupe_tool_results
from rules.fold import FoldMemo, replay_cut
from rules.head_tail import MIN_TEXT_TOKENS, truncate_text
from rules.pairing import pair_tool_calls
from rules.policy import OnExceeded, Policy
from rules.prune import PLACEHOLDER_TOKENS, prune_tool_results
from rules.results import KeptResults, Work, edit_and_hash
from rules.room import Room
from rules.splice import splice_summary
from rules.summarise import Summary, SummaryRequest, make_digest, request_prefetch, request_summary
from rules.tidy_results import TIDY
from rules.truncate import TRUNCATE
from rules.window import Window


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

    `original` is the client's transcript; `conversation` the same after the rules that need no window, `hashes` those
    of prefixes. `limit` is what it is planned for, `hard_limit` what the window holds at most. `request` is the text
    to get before `apply`, None where nothing was cut; `prefetch` one that the next cut is expected to need.
    """

    original: Conversation
    conversation: Conversation
    hashes: Sequence[bytes]
    window: Window
    request: SummaryRequest | None
    prefetch: SummaryRequest | None
    decisions: tuple[Decision, ...]
    limit: int
    hard_limit: int

    def put_off(self) -> "Plan | None":
        """The plan without its last cut, as the request before may have been forwarded; None where nothing was cut."""
        window = self.window.earlier
        if window is None:
            return None
        request = request_summary(self.conversation.messages, self.hashes, window)
        return replace(self, window=window, request=request, prefetch=None)

    @property
    def reserved_tokens(self) -> int:
        """What would be forwarded at most: a summary taking all of its reserve."""
        messages, window, cut = self.conversation.messages, self.window, self.window.cut
        leading = count_leading(messages)
        head = {*range(leading), window.task} if cut else set()
        tokens: int = self.conversation.fixed_tokens + (cut.tokens if cut else 0)
        tokens += sum(messages[index].tokens for index in head if index is not None)
        for index in range(cut.at if cut else 0, len(messages)):
            message = messages[index]
            is_pruned = index < window.prune_stop and message.role in RESULT_ROLES
            if index not in head:
                tokens += min(message.tokens, PLACEHOLDER_TOKENS) if is_pruned else message.tokens
        return tokens

    def find_prefix(self, forwarded: Conversation, at: int) -> tuple[Message, ...] | None:
        """What is forwarded of the messages before `at`; None where that message is not forwarded as it came.

        Counted from the end, as messages may stand twice; a bridging line of ours may stand behind `at`, too.
        """
        behind = len(self.conversation.messages) - at
        for stop in (len(forwarded.messages) - behind, len(forwarded.messages) - behind - 1):
            if 0 <= stop < len(forwarded.messages) and forwarded.messages[stop] is self.conversation.messages[at]:
                return forwarded.messages[:stop]
        return None


def plan(
    conversation: Conversation,
    policy: Policy,
    *,
    count: CountTokens,
    request_max_tokens: int | None = None,
    work: Work | None = None,
    folds: FoldMemo | None = None,
) -> Plan:
    """Decide everything about one request; `request_max_tokens` is the completion that it asks for.

    `work` and `folds` may hold what earlier calls worked out; they change nothing but the time that this takes.
    Raises LargeWorkError where `work` does not allow for so much.
    """
    work = work or Work(count)
    limit = policy.limit_tokens(request_max_tokens)
    paired = pair_tool_calls(conversation, count=count)
    short, hashes = edit_and_hash(paired.conversation, policy, (TIDY, TRUNCATE), work)
    messages = short.conversation.messages
    room = Room.measure(messages, conversation.fixed_tokens, limit)
    window = replay_cut(messages, hashes, room=room, policy=policy, memo=folds)
    return Plan(
        original=conversation,
        conversation=short.conversation,
        hashes=hashes,
        window=window,
        request=request_summary(messages, hashes, window),
        prefetch=request_prefetch(messages, hashes, window),
        decisions=(*paired.decisions, *short.decisions),
        limit=limit,
        hard_limit=policy.hard_limit_tokens(request_max_tokens),
    )


def apply(
    plan: Plan, policy: Policy, *, count: CountTokens, summary: Summary | None = None, memos: Memos | None = None
) -> Outcome:
    """Carry the plan out; `summary` is what `plan.request` asked for, None for the digest.

    `memos` may hold what earlier calls found out of results that are alike; they change nothing but the time.
    Raises LimitExceededError where the policy refuses what cannot fit, and what `memos` may raise.
    """
    window = plan.window
    decisions = plan.decisions
    start = window.cut.at if window.cut else 0
    pruned = prune_tool_results(plan.conversation, start=start, stop=window.prune_stop, count=count)
    decisions += pruned.decisions
    current = pruned.conversation
    if any(treatment.dedupe for treatment in policy.treatments()):
        # Before the splice, which leaves all behind the cut as it is: until then indexes are those of the plan.
        kept = KeptResults(current.messages, policy)
        deduped = dedupe_tool_results(
            current, start=max(start, window.prune_stop), count=count, is_exempt=kept.is_kept, memos=memos
        )
        decisions += deduped.decisions
        current = deduped.conversation
    if window.cut is not None and plan.request is not None:
        if summary is None:
            summary = Summary(make_digest(plan.request, count=count), by_model=False)
        spliced = splice_summary(current, window=window, summary=summary, role=policy.summary_role, count=count)
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
        for limit in (plan.limit, plan.hard_limit):
            shortened = _truncate_open_step(conversation, limit, count)
            if shortened.conversation.tokens <= limit:
                return shortened
    if conversation.tokens <= plan.hard_limit:
        return Outcome(conversation)  # the completion's reserve is ours, and for the upstream to judge
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
