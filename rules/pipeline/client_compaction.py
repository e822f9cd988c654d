"""Requests in which a client asks for a summary of its own conversation: they pass unchanged while that is possible.

If a summary of ours stood in such a request, or a tool result were a placeholder, the client would summarise what is
summarised already.

Law: decided by the transcript and the policy alone. Only the last message and the leading system messages are read, and
nothing that is kept for the session changes.
"""

from dataclasses import replace
from itertools import takewhile

from rules.conversation import Conversation, Message, Role, count_asked, count_leading
from rules.pipeline.transcript_state import TranscriptState, take_state
from rules.policy import Limits, Policy
from rules.results.pairing import pair_tool_calls
from rules.results.work import Work
from rules.text.summary_requests import asks_for_summary, instructs_to_summarise


def is_client_compaction(conversation: Conversation) -> bool:
    """Whether a client asks for a summary of the conversation: in the last message, or by its system prompt."""
    messages = conversation.messages
    if not messages or messages[-1].role is not Role.USER:
        return False
    leading = takewhile(_is_system, messages)
    return any(map(asks_for_summary, messages[-1].texts)) or any(
        instructs_to_summarise(text) for message in leading for text in message.texts
    )


def may_pass(
    conversation: Conversation, policy: Policy, limits: Limits, request_max_tokens: int | None, work: Work
) -> bool:
    """Whether a client's request for a summary can go out unchanged.

    It must fit the window together with the completion that it asks for, and the request before it must have gone out
    without a cut, a placeholder or a removed image; else the upstream's prompt cache has the shorter prompt. Its calls
    and results must be paired. A request that does not limit its completion must leave half of the reserve for it.
    Raises LargeWorkError.
    """
    # Without a limit, `fitting` leaves no room for the summary that the client waits for.
    most = limits.fitting if request_max_tokens else min(limits.fitting, limits.limit + limits.spare)
    if conversation.tokens > most:
        return False
    # A call without a result would be refused by the upstream, and was repaired in the request before.
    is_paired = conversation.continues or not pair_tool_calls(conversation, count=work.count).decisions
    return is_paired and not _was_shortened(conversation, policy, limits, work)


def _was_shortened(conversation: Conversation, policy: Policy, limits: Limits, work: Work) -> bool:
    """Whether the window of the request before this one has a cut or leaves out anything else."""
    before = _find_before(conversation, work)
    if before is None:
        return False
    replayed = _make_state(before, policy, work).replay(before, policy, limits, work)
    return bool(replayed.head) or replayed.window.shortens


def was_edited(conversation: Conversation, policy: Policy, work: Work) -> bool:
    """Whether the request before a request that passes sent a message otherwise: truncated, say, or with a pin.

    Raises LargeWorkError.
    """
    before = _find_before(conversation, work)
    if before is None:
        return False
    state = _make_state(before, policy, work)
    edited = state.edit(before, policy, work)
    if edited.decisions or state.find_pins(edited.conversation.messages, policy, work):
        return True
    leading = count_leading(before.messages)
    is_compared = any(treatment.dedupe for treatment in policy.treatments())
    return is_compared and bool(state.dedupe(before, leading, policy, work).decisions)


def _find_before(conversation: Conversation, work: Work) -> Conversation | None:
    """The paired transcript of the request before this one; None if there was none, or if the upstream holds it."""
    asked = count_asked(conversation.messages)
    if conversation.continues or not asked:
        return None
    before = replace(conversation, messages=conversation.messages[:asked], origins=conversation.origins[:asked])
    return pair_tool_calls(before, count=work.count).conversation


def _make_state(before: Conversation, policy: Policy, work: Work) -> TranscriptState:
    """A state of its own: this request must not disturb the one that the session goes on from."""
    return take_state(None, before.messages, policy, work)


def _is_system(message: Message) -> bool:
    return message.role is Role.SYSTEM
