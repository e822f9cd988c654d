"""The leading system messages: when they lose retrieved memory, and when they are truncated.

Law: a function of the head, the limit and the policy, never of the conversation after the first user message. What
stands outside the messages (tools, response format) counts rounded up, and so do messages that stay. So a timestamp or
a small tool that changes does not change the text of another message. Without a reason to act, nothing changes.
"""

from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from rules.conversation import Conversation, CountTokens, Decision, Message, Outcome, Role
from rules.pipeline.memory import strip_message
from rules.policy import OverflowStrategy, Policy
from rules.results.edit import UNTOUCHED, shorten_once
from rules.results.excerpt.rule import MIN_SHARE
from rules.results.work import Shortened, Work
from rules.text.head_tail import truncate_text
from rules.window.room import MIN_ROOM_SHARE, leave_room

GRAINS = 16
"""What stays whole counts as a multiple of this part of what is shared. Chosen: as the head of the room (room.py)."""
LEAST_SHARE = 1 / 4
"""System messages keep this part of their share even if tools leave less of it. Chosen: tools cannot be truncated, and
an agent without its instructions is of no use."""
LEAST_TEXT_TOKENS = 2 * MIN_SHARE
"""No text gets less than half of this. Chosen: as for the texts of a tool result (MIN_SHARE)."""


def fit_head(conversation: Conversation, task_tokens: int, policy: Policy, limit: int, work: Work) -> Outcome:
    """The conversation with leading system messages that leave room for it, as far as the policy allows.

    `task_tokens`: what the task statement costs. Raises LargeWorkError.
    """
    leading = tuple(takewhile(_is_system, conversation.messages))
    if not leading:
        return Outcome(conversation)
    head_tokens = conversation.fixed_tokens + task_tokens + _sum(leading)
    decisions: list[Decision] = []
    bare = leading
    if (
        leave_room(limit, head_tokens) < limit * MIN_ROOM_SHARE
        and policy.overflow_strategy is not OverflowStrategy.ERROR
    ):
        bare = tuple([strip_message(message, policy.memory_tags, work) for message in leading])
        if changed := _find_changed(leading, bare):
            reason, sizes = f"memory of {len(changed)} messages at the beginning", (_sum(leading), _sum(bare))
            decisions.append(Decision("memory", reason, *sizes, len(changed), changed[0]))
    short = bare
    if policy.sections is not None and policy.truncate_system:
        share = int(limit * policy.sections.system)
        short = _truncate(bare, share, conversation.fixed_tokens, work)
        if changed := _find_changed(bare, short):
            reason, sizes = f"{len(changed)} system messages over their share", (_sum(bare), _sum(short))
            decisions.append(Decision("truncate_system", reason, *sizes, len(changed), changed[0]))
    if not decisions:
        return Outcome(conversation)
    return Outcome(conversation.edit((*short, *conversation.messages[len(short) :])), tuple(decisions))


def _is_system(message: Message) -> bool:
    return message.role is Role.SYSTEM


def _sum(messages: Sequence[Message]) -> int:
    return sum(message.tokens for message in messages)


def _find_changed(before: Sequence[Message], after: Sequence[Message]) -> list[int]:
    return [at for at, (one, two) in enumerate(zip(before, after, strict=True)) if one is not two]


def _truncate(leading: Sequence[Message], share: int, fixed_tokens: int, work: Work) -> tuple[Message, ...]:
    """The messages within the share, as far as they have texts that may be shortened. Raises LargeWorkError."""
    free = [message for message in leading if message.texts and not (message.has_fixed_texts or message.keeps_before)]
    bound_tokens = fixed_tokens + _sum(leading) - _sum(free)
    if bound_tokens + _sum(free) <= share:
        return tuple(leading)
    least = LEAST_TEXT_TOKENS * sum(len(message.texts) for message in free)
    budget = max(share - _round_up(bound_tokens, share), int(share * LEAST_SHARE), least)
    caps = share_evenly([message.tokens for message in free], budget)
    short = [_cap(message, cap, work) for message, cap in zip(free, caps, strict=True)]
    by_id = {id(message): one for message, one in zip(free, short, strict=True)}
    return tuple([by_id.get(id(message), message) for message in leading])


def _round_up(tokens: int, shared: int) -> int:
    grain = max(shared // GRAINS, 1)
    return -(-tokens // grain) * grain


def share_evenly(sizes: Sequence[int], budget: int) -> list[int]:
    """What each of several parts may have of a budget: small ones their size, large ones equal shares of what is left.

    The small ones count rounded up, so the shares stay the same if their sizes change a little.
    """
    caps, kept, number = list(sizes), 0, len(sizes)
    order = sorted(range(number), key=sizes.__getitem__)
    for rank, at in enumerate(order):
        if sizes[at] * (number - rank) > budget - kept:
            even = (budget - _round_up(kept, budget)) // (number - rank)
            # Rounding must not take everything. At least half of an even share is left in any case.
            for large in order[rank:]:
                caps[large] = max(even, budget // (2 * number))
            break
        kept += sizes[at]
    return caps


def _cap(message: Message, cap: int, work: Work) -> Message:
    if message.tokens <= cap:
        return message
    work_out = partial(_work_out, message, cap, work.count)
    return shorten_once(message, None, f"truncate_system {cap}", work, work_out)


def _work_out(message: Message, cap: int, count: CountTokens) -> Shortened:
    sizes = list(map(count, message.texts))
    budget = max(cap - (message.tokens - sum(sizes)), LEAST_TEXT_TOKENS * len(sizes))
    pairs = zip(message.texts, sizes, share_evenly(sizes, budget), strict=True)
    texts = tuple([text if size <= most else truncate_text(text, most, count) for text, size, most in pairs])
    saved_tokens = sum(sizes) - sum(map(count, texts))
    return Shortened(texts, saved_tokens) if saved_tokens > 0 else UNTOUCHED
