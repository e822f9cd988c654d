"""Everything about one request is decided: the order of the rules.

Law: pure. What is remembered saves time and changes nothing else.
"""

from rules.conversation import Conversation, CountTokens, Outcome, Role
from rules.pipeline.exceeded import shorten_newest
from rules.pipeline.plan import Plan
from rules.pipeline.transcript_state import States, TranscriptState, name_state, take_state
from rules.policy import PREFETCH_GAP, Limits, OnExceeded, Policy, find_limits
from rules.prefix import hash_prefixes
from rules.results.pairing import pair_tool_calls
from rules.results.work import Work
from rules.summary.request import request_prefetch, request_summary
from rules.window.room import HEAD_STEPS, Room
from rules.window.state import Window

FEW_MESSAGES = 16
"""Of more, it is worth remembering what was worked out."""


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
    limits = find_limits(policy, request_max_tokens)
    if _surely_stays(conversation, policy, limits):
        return _leave_alone(conversation, limits)
    work = work or Work(count)
    known = None if states is None else states.get(name_state(conversation.messages, policy, work))
    found = None if known is None else known.find_plan(conversation, request_max_tokens)
    if found is not None:
        return found
    work = work.begin()
    paired = pair_tool_calls(conversation, count=count)
    messages = paired.conversation.messages
    state = take_state(states, messages, policy, work)
    planned = _decide(conversation, paired, policy, limits, state, work)
    if states is not None:
        state.last = planned, request_max_tokens
        states[name_state(messages, policy, work)] = state
    return planned


def _surely_stays(conversation: Conversation, policy: Policy, limits: Limits) -> bool:
    """Whether no rule can act: there are no calls, results and images, and the window is nearly empty.

    All of it may be head, whose size is rounded up, and all of it may stand behind the head.
    """
    if len(conversation.messages) > FEW_MESSAGES:
        return False
    for message in conversation.messages:
        if message.tool_calls or message.media or message.role is Role.TOOL:
            return False
    tokens, limit = conversation.tokens, limits.limit
    return tokens < min(policy.high_water, 1 - PREFETCH_GAP) * (limit - tokens - limit // HEAD_STEPS - 1)


def _leave_alone(conversation: Conversation, limits: Limits) -> Plan:
    """The plan of a transcript in which no rule can act: what `_decide` would make of it."""
    messages = conversation.messages
    task = next((index for index, message in enumerate(messages) if message.role is Role.USER), None)
    return Plan(
        original=conversation,
        conversation=conversation,
        whole=conversation,
        hashes=hash_prefixes(messages),
        window=Window(task=task),
        request=None,
        prefetch=None,
        decisions=(),
        model_limit=limits.model_limit,
        limit=limits.limit,
        fitting=limits.fitting,
        hard_limit=limits.hard_limit,
        is_empty=True,
    )


def _decide(
    original: Conversation, paired: Outcome, policy: Policy, limits: Limits, state: TranscriptState, work: Work
) -> Plan:
    """The plan of a transcript whose calls are `paired`, going on from its state."""
    short = state.edit(paired.conversation, policy, work)
    messages, hashes = short.conversation.messages, state.hashes
    shortens = policy.on_exceeded is OnExceeded.TRUNCATE
    room = Room.measure(messages, original.fixed_tokens, limits.limit, spare=limits.spare, shortens=shortens)
    window = state.replay(messages, room, policy)
    fitted = Outcome(short.conversation)
    if window.caps:
        fitted = shorten_newest(short.conversation, paired.conversation, window.caps, policy=policy, work=work)
    messages = fitted.conversation.messages
    return Plan(
        original=original,
        conversation=fitted.conversation,
        whole=short.conversation,
        hashes=hashes,
        window=window,
        request=request_summary(messages, hashes, window),
        prefetch=request_prefetch(messages, hashes, window),
        decisions=(*paired.decisions, *short.decisions, *fitted.decisions),
        model_limit=limits.model_limit,
        limit=limits.limit,
        fitting=limits.fitting,
        hard_limit=limits.hard_limit,
    )
