"""Everything about one request is decided: the order of the rules.

Law: pure. What is remembered saves time and changes nothing else.
"""

from rules.conversation import Conversation, CountTokens, Outcome
from rules.pipeline.exceeded import shorten_newest
from rules.pipeline.plan import Plan
from rules.pipeline.transcript_state import States, TranscriptState, name_state, take_state
from rules.policy import OnExceeded, Policy
from rules.results.pairing import pair_tool_calls
from rules.results.work import Work
from rules.summary.request import request_prefetch, request_summary
from rules.window.room import Room


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
    known = None if states is None else states.get(name_state(conversation.messages, policy, work))
    found = None if known is None else known.find_plan(conversation, request_max_tokens)
    if found is not None:
        return found
    work = work.begin()
    paired = pair_tool_calls(conversation, count=count)
    messages = paired.conversation.messages
    state = take_state(states, messages, policy, work)
    planned = _decide(conversation, paired, policy, request_max_tokens, state, work)
    if states is not None:
        state.last = planned, request_max_tokens
        states[name_state(messages, policy, work)] = state
    return planned


def _decide(
    original: Conversation, paired: Outcome, policy: Policy, max_tokens: int | None, state: TranscriptState, work: Work
) -> Plan:
    """The plan of a transcript whose calls are `paired`, going on from its state."""
    short = state.edit(paired.conversation, policy, work)
    messages, hashes = short.conversation.messages, state.hashes
    limit, spare = policy.limit_tokens(max_tokens), policy.spare_tokens(max_tokens)
    shortens = policy.on_exceeded is OnExceeded.TRUNCATE
    room = Room.measure(messages, original.fixed_tokens, limit, spare=spare, shortens=shortens)
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
        model_limit=policy.model_limit_tokens(max_tokens),
        limit=limit,
        fitting=policy.fitting_tokens(max_tokens),
        hard_limit=policy.hard_limit_tokens(max_tokens),
    )
