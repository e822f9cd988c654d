"""The arms of an evaluation: the ways to bring a session into the window.

Law: pure. Every arm is made from the client's own last request. All are asked in the same form, which the strictest
server accepts: each call has its result, and an assistant message comes before the question.
"""

from dataclasses import dataclass, replace

from proxy.cli.evaluate.replay import Rehearsal
from rules.conversation import Conversation, CountTokens, Message, Role, count_leading, find_beside, starts_step
from rules.results.pairing import pair_tool_calls
from rules.tokens.messages import finish_message

NAMES = ("none", "trimtab", "digest", "truncate")
"""`none`: the whole session. `trimtab`: compacted, with a model's summaries. `digest`: compacted, without a model.
`truncate`: only the newest messages that fit."""
PAUSED = "The work is paused here."


@dataclass(frozen=True, slots=True)
class Arm:
    """What a model sees of the session in one arm.

    tokens: the model's own, without a question.
    problem: why the arm cannot be asked; None if it can.
    """

    name: str
    conversation: Conversation
    tokens: int
    problem: str | None = None


def make_arm(name: str, rehearsal: Rehearsal, forwarded: Conversation, room_tokens: int) -> Arm:
    """Make the arm with this name, one of NAMES.

    forwarded: what compaction leaves.
    room_tokens: largest prompt that the window holds, in the model's own tokens.
    """
    count, ratio = rehearsal.compactor.count, rehearsal.policy.token_ratio
    whole = pair_tool_calls(rehearsal.planned.original, count=count).conversation
    conversation = forwarded
    if name == "none":
        conversation = whole
    elif name == "truncate":
        conversation = truncate(whole, forwarded.tokens)
    tokens = round(ratio * conversation.tokens)
    problem = f"does not fit the window, which has room for {room_tokens:,} tokens" if tokens > room_tokens else None
    return Arm(name, _pause(conversation, count), tokens, problem)


def truncate(conversation: Conversation, max_tokens: int) -> Conversation:
    """Keep the leading system messages and the newest whole steps that fit. The last step is always kept."""
    messages = conversation.messages
    leading = count_leading(messages)
    left = max_tokens - conversation.fixed_tokens - sum(message.tokens for message in messages[:leading])
    start = len(messages)
    for index in range(len(messages) - 1, leading - 1, -1):
        left -= messages[index].tokens
        if left < 0 and start < len(messages):
            break
        if starts_step(messages[index]):
            start = index
    return _pick(conversation, [*range(leading), *range(start, len(messages))])


def _pick(conversation: Conversation, indexes: list[int]) -> Conversation:
    messages, origins = conversation.messages, conversation.origins
    picked = tuple(messages[index] for index in indexes)
    return replace(conversation, messages=picked, origins=tuple(origins[index] for index in indexes))


def _pause(conversation: Conversation, count: CountTokens) -> Conversation:
    """Append a message of the assistant, unless the conversation ends with one that calls no tool."""
    messages = conversation.messages
    if messages and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls:
        return conversation
    line = finish_message(Message(Role.ASSISTANT, (PAUSED,), beside=find_beside(messages)), count)
    return replace(conversation, messages=(*messages, line), origins=(*conversation.origins, None))
