"""Decide everything about one request: the rules in their order.

Law: pure. Remembered states save time and never change the result.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from rules.conversation import Conversation, CountTokens, Outcome, Role
from rules.pipeline.client_compaction import is_client_compaction, may_pass, was_edited
from rules.pipeline.exceeded import shorten_newest
from rules.pipeline.pins.rule import fit_pins
from rules.pipeline.plan import Plan
from rules.pipeline.transcript_state import NO_COLD, Replayed, States, TranscriptState, name_state, take_state
from rules.policy import PREFETCH_GAP, Limits, Policy, find_limits
from rules.prefix import hash_prefixes
from rules.results.long_messages import may_shorten
from rules.results.pairing import pair_tool_calls
from rules.results.work import Work
from rules.summary.request import request_prefetch, request_summary
from rules.window.room import HEAD_STEPS, bound_guesses
from rules.window.state import ColdCut, Window

FEW_MESSAGES = 16
"""A longer transcript is always decided in full, and its state is kept for the next request. Chosen: up to this length,
deciding again costs less than keeping the state."""


def plan(  # noqa: PLR0913 - the memory of earlier calls, too
    conversation: Conversation,
    policy: Policy,
    *,
    count: CountTokens,
    request_max_tokens: int | None = None,
    work: Work | None = None,
    states: States | None = None,
    cold: Mapping[bytes, ColdCut] = NO_COLD,
    tells_compaction: bool | None = None,
) -> Plan:
    """Decide everything about one request.

    request_max_tokens: the length of completion that the request asks for; None if it names none.
    work, states: memory of earlier calls; it saves time and does not change the result.
    cold: what was cut at a cold cache, by the hash of the prefix; entries of other transcripts have no effect.
    tells_compaction: whether the client says that it asks for a summary of its conversation; None if it does not say.
    Raises LargeWorkError if the allowance of `work` is used up.
    """
    limits = find_limits(policy, request_max_tokens)
    conversation = bound_guesses(conversation, limits.limit)
    is_compaction = is_client_compaction(conversation) if tells_compaction is None else tells_compaction
    if _surely_stays(conversation, policy, limits):
        return _leave_alone(conversation, limits, is_compaction=is_compaction)
    work = work or Work(count)
    if is_compaction and may_pass(conversation, policy, limits, request_max_tokens, work.begin()):
        return _pass_on(conversation, policy, limits, work.begin())
    known = None if states is None else states.get(name_state(conversation.messages, policy, work))
    if known is not None and (found := known.find_plan(conversation, request_max_tokens, cold)) is not None:
        return found
    work = work.begin()
    paired = Outcome(conversation) if conversation.continues else pair_tool_calls(conversation, count=count)
    messages = paired.conversation.messages
    state = take_state(states, messages, policy, work)
    replayed = state.replay(paired.conversation, policy, limits, work, cold)
    planned = replace(_decide(paired, replayed, policy, limits, state, work), original=conversation)
    if states is not None:
        state.last = planned, request_max_tokens
        states[name_state(messages, policy, work)] = state
    return planned


def _pass_on(conversation: Conversation, policy: Policy, limits: Limits, work: Work) -> Plan:
    """The plan of a client's request for a summary that passes unchanged."""
    left = _leave_alone(conversation, limits, is_compaction=True)
    return replace(left, was_otherwise=was_edited(conversation, policy, work))


def _surely_stays(conversation: Conversation, policy: Policy, limits: Limits) -> bool:
    """Whether no rule can act: there are no calls, results or images, and the window is nearly empty.

    All tokens count twice, as head (rounded up) and as conversation. So the result is on the safe side.
    """
    if len(conversation.messages) > FEW_MESSAGES or _has_own_limits(policy):
        return False
    for message in conversation.messages:
        if message.tool_calls or message.media or message.role is Role.TOOL or may_shorten(message, policy):
            return False
    tokens, limit = conversation.tokens, limits.limit
    return tokens < min(policy.high_water, 1 - PREFETCH_GAP) * (limit - tokens - limit // HEAD_STEPS - 1)


def _has_own_limits(policy: Policy) -> bool:
    """Whether something may be removed long before the window is full."""
    return policy.compact_at_tokens is not None or policy.sections is not None or policy.max_turns is not None


def _leave_alone(conversation: Conversation, limits: Limits, *, is_compaction: bool) -> Plan:
    """The plan of a transcript on which no rule acts.

    If no rule can act, it is equal to the one that `_decide` would make.
    """
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
        is_client_compaction=is_compaction,
    )


def _decide(
    paired: Outcome, replayed: Replayed, policy: Policy, limits: Limits, state: TranscriptState, work: Work
) -> Plan:
    """The plan of a transcript with paired calls; goes on from the transcript's state."""
    short, pins, window = replayed.edited, replayed.pins, replayed.window
    light = state.memory.drop(short.conversation, window.memory_stop)
    stop = window.users_stop
    limited = state.users.apply(light.conversation, stop) if stop else Outcome(light.conversation)
    fitted = Outcome(limited.conversation)
    if window.caps:
        caps, pins = fit_pins(window.caps, pins, paired.conversation.messages)
        whole = state.memory.drop(paired.conversation, window.memory_stop).conversation
        fitted = shorten_newest(limited.conversation, whole, caps, policy=policy, work=work)
    messages = fitted.conversation.messages
    return Plan(
        original=paired.conversation,
        conversation=fitted.conversation,
        whole=limited.conversation,
        hashes=state.hashes,
        window=window,
        request=request_summary(messages, state.hashes, window),
        prefetch=request_prefetch(messages, state.hashes, window),
        decisions=tuple(chain(replayed.head, *(one.decisions for one in (paired, short, light, limited, fitted)))),
        model_limit=limits.model_limit,
        limit=limits.limit,
        fitting=limits.fitting if replayed.soft_limit is None else min(limits.fitting, replayed.soft_limit),
        hard_limit=limits.hard_limit,
        pins=tuple(pins.values()),
        cold=replayed.cold,
        memories=tuple((at, short.conversation.messages[at]) for at in state.memory.bare if at < window.memory_stop),
        long_users=tuple((at, light.conversation.messages[at]) for at in state.users.short if at < window.users_stop),
    )
