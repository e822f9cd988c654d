"""The order of the rules: plan() decides, apply() carries out.

Law: pure. Between the two stands the shell's only wait: the text of `plan.request`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Outcome,
    Role,
    count_leading,
)
from rules.pipeline.exceeded import shorten_newest
from rules.pipeline.transcript import States, name_state, take_state
from rules.policy import OnExceeded, Policy
from rules.results.dedupe import dedupe_tool_results
from rules.results.pairing import pair_tool_calls
from rules.results.work import Work
from rules.summary.request import Summary, SummaryRequest, make_digest, request_prefetch, request_summary
from rules.summary.splice import splice_summary
from rules.window.prune import PLACEHOLDER_TOKENS, prune_tool_results
from rules.window.room import Room
from rules.window.state import Window


class LimitExceededError(ValueError):
    """Nothing could bring the request within the window, and the policy says to refuse it.

    `tokens` are those of the prompt after compaction, `limit` is what it was planned for. `window` is in the model's
    own tokens.
    """

    def __init__(
        self, original_tokens: int, tokens: int, limit: int, *, window: int, decisions: Sequence[Decision]
    ) -> None:
        super().__init__(f"{tokens} prompt tokens after compaction, limit {limit}")
        self.original_tokens = original_tokens
        self.tokens = tokens
        self.limit = limit
        self.window = window
        self.decisions = tuple(decisions)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one request.

    `original` is the client's transcript; `conversation` the same after the rules that need no window, `hashes` those
    of prefixes. `limit` is what it is planned for, `fitting` what the window holds beside the completion asked for,
    `hard_limit` what it holds at most. `request` is the text to get before `apply`, None where nothing was cut;
    `prefetch` one that the next cut is expected to need.
    """

    original: Conversation
    conversation: Conversation
    hashes: Sequence[bytes]
    window: Window
    request: SummaryRequest | None
    prefetch: SummaryRequest | None
    decisions: tuple[Decision, ...]
    limit: int
    fitting: int
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
            is_pruned = index < window.prune_stop and message.role is Role.TOOL
            if index not in head:
                tokens += min(message.tokens, PLACEHOLDER_TOKENS) if is_pruned else message.tokens
        return tokens

    def find_prefix(self, forwarded: Conversation, at: int) -> Conversation | None:
        """What is forwarded of the messages before `at`; None where that message is not forwarded as it came.

        Counted from the end, as messages may stand twice; a bridging line of ours may stand behind `at`, too.
        """
        behind = len(self.conversation.messages) - at
        for stop in (len(forwarded.messages) - behind, len(forwarded.messages) - behind - 1):
            if 0 <= stop < len(forwarded.messages) and forwarded.messages[stop] is self.conversation.messages[at]:
                return replace(forwarded, messages=forwarded.messages[:stop], origins=forwarded.origins[:stop])
        return None


def plan(
    conversation: Conversation,
    policy: Policy,
    *,
    count: CountTokens,
    request_max_tokens: int | None = None,
    work: Work | None = None,
    states: States | None = None,
) -> Plan:
    """Decide everything about one request; `request_max_tokens` is the completion that it asks for.

    `work` and `states` may hold what earlier calls worked out: with them this takes less time, and returns the same.
    Raises LargeWorkError if `work` does not allow for so much.
    """
    work = work or Work(count)
    limit = policy.limit_tokens(request_max_tokens)
    paired = pair_tool_calls(conversation, count=count)
    state = take_state(states, paired.conversation.messages, policy, work)
    short = state.edit(paired.conversation, policy, work)
    messages, hashes = short.conversation.messages, state.hashes
    shortens = policy.on_exceeded is OnExceeded.TRUNCATE
    spare = policy.spare_tokens(request_max_tokens)
    room = Room.measure(messages, conversation.fixed_tokens, limit, spare=spare, shortens=shortens)
    window = state.replay(messages, room, policy)
    if states is not None:
        states[name_state(messages, policy, work)] = state
    fitted = shorten_newest(short.conversation, paired.conversation, window.caps, policy=policy, work=work)
    messages = fitted.conversation.messages
    return Plan(
        original=conversation,
        conversation=fitted.conversation,
        hashes=hashes,
        window=window,
        request=request_summary(messages, hashes, window),
        prefetch=request_prefetch(messages, hashes, window),
        decisions=(*paired.decisions, *short.decisions, *fitted.decisions),
        limit=limit,
        fitting=policy.fitting_tokens(request_max_tokens),
        hard_limit=policy.hard_limit_tokens(request_max_tokens),
    )


def apply(
    plan: Plan,
    policy: Policy,
    *,
    count: CountTokens,
    summary: Summary | None = None,
    work: Work | None = None,
    states: States | None = None,
) -> Outcome:
    """Carry the plan out; `summary` is what `plan.request` asked for, None for the digest.

    `work` and `states` are as for `plan`. Raises LimitExceededError if the policy refuses what cannot fit, and
    LargeWorkError if `work` does not allow for so much.
    """
    work = work or Work(count)
    window = plan.window
    decisions = plan.decisions
    start = window.cut.at if window.cut else 0
    pruned = prune_tool_results(plan.conversation, start=start, stop=window.prune_stop, count=count)
    decisions += pruned.decisions
    current = pruned.conversation
    if any(treatment.dedupe for treatment in policy.treatments()):
        # Before the splice, which leaves all behind the cut as it is: until then indexes are those of the plan.
        start = max(start, window.prune_stop, count_leading(current.messages))
        deduped = _dedupe(current, start, policy, work, states)
        decisions += deduped.decisions
        current = deduped.conversation
    if window.cut is not None and plan.request is not None:
        if summary is None:
            summary = Summary(make_digest(plan.request, count=count), by_model=False)
        spliced = splice_summary(current, window=window, summary=summary, role=policy.summary_role, count=count)
        decisions += spliced.decisions
        current = spliced.conversation
    # Between limit and window the completion may be cut short: that is for the upstream to judge.
    if current.tokens > plan.hard_limit and policy.on_exceeded is not OnExceeded.FORWARD and current.messages:
        raise LimitExceededError(
            plan.original.tokens, current.tokens, plan.limit, window=policy.context_window, decisions=decisions
        )
    return Outcome(plan.original if not decisions else current, decisions)


def _dedupe(current: Conversation, start: int, policy: Policy, work: Work, states: States | None) -> Outcome:
    """Results from `start` on that repeat an earlier one, going on from the state that plan() left."""
    key = name_state(current.messages, policy, work)
    if states is None or (state := states.pop_first([key])) is None:  # another request may have taken it
        return dedupe_tool_results(current, policy, start=start, work=work)
    try:
        return state.dedupe(current, start, policy, work)
    finally:
        states[key] = state
