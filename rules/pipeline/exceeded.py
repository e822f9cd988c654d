"""Exceeded: the newest messages are shortened if even a cut does not make enough room; or the request is refused.

Law: the fold (cut_decision.py) decides how much each message keeps, so a shortened message is forwarded the same in all
later requests. A text is shortened once, from the client's original, and its marker says how much is missing. What must
shrink before a refused request is accepted is a function of the plan, the policy and what was left after compaction: a
client that shortens the parts of the remainder by the excess is not refused again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from msgspec import structs

from trimtab.rules.conversation import (
    Conversation,
    Decision,
    Message,
    Outcome,
    Role,
    Telling,
    count_leading,
    replace_messages,
)
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.policy import Budget, OnExceeded, OverflowStrategy, Policy, PreserveSystem
from trimtab.rules.results.calls import FoundResult, find_results
from trimtab.rules.results.excerpt import share_ends, truncate_result
from trimtab.rules.results.tidy import TIDY
from trimtab.rules.results.work import Result, Shortened, Work, edit_one, shorten_once
from trimtab.rules.text.markers import ASK_PART
from trimtab.rules.window.cut_candidates import SUMMARY_FRAME_TOKENS
from trimtab.rules.window.prune import drop_images
from trimtab.rules.window.room import HEAD_STEPS, LEAST_ROOM_SHARE, MIN_ROOM_SHARE, Cap, least_tokens
from trimtab.rules.window.state import Window
from trimtab.rules.window.sums import Sums

TELLING = Telling(
    "message",
    "{what} did not fit the window even after everything else, and {was} shortened, {saved}; a marker says how much is"
    " missing{hidden}.",
)


KEEP = "keep"
KEEP_TELLING = Telling(
    "message",
    "{what} that {was} to be kept did not fit: such messages get half of what a prompt may have, and the newest stay.",
)


@dataclass(eq=False, repr=False)
class LimitExceededError(ValueError):
    """The request does not fit the window even after compaction, and the policy refuses such requests.

    original_tokens, tokens: the prompt before and after compaction, in our tokens.
    limit: the size that the prompt was planned for, in our tokens.
    window: the context window, in the model's own tokens.
    decisions: what the rules did, in order.
    conversation: what was left after compaction; None if it is not known.
    remainder: what must shrink, because no rule removes it; None if it is not known.
    """

    original_tokens: int
    tokens: int
    limit: int
    window: int
    decisions: tuple[Decision, ...]
    conversation: Conversation | None = None
    remainder: "Remainder | None" = None

    def __post_init__(self) -> None:
        super().__init__(f"{self.tokens} prompt tokens after compaction, limit {self.limit}")


def shorten_newest(
    conversation: Conversation, original: Conversation, caps: Iterable[Cap], *, policy: Policy, work: Work
) -> Outcome:
    """Shorten each message of `caps` to its cap.

    `original` holds the same messages before any rule on texts. Tool results are shortened by the policy for their
    tool, user messages to head and tail. The oldest images are removed if a cap leaves no room for them. Raises
    LargeWorkError if the allowance of `work` is used up.
    """
    new: dict[int, Message] = {}
    places = _find_places(original.messages, caps, policy)
    for cap in caps:
        message, place = original.messages[cap.at], places.get(cap.at)
        without = drop_images(message, max(least_tokens(message) - cap.tokens, 0))
        work_out = partial(_work_out, message, place, cap.tokens + message.tokens - without.tokens, work)
        shorter = shorten_once(message, place, f"exceeded {cap.tokens}", work, work_out)
        if without is not message:
            shorter = replace(shorter.shorten(shorter.texts, message.tokens - without.tokens), media=without.media)
        if shorter.tokens < conversation.messages[cap.at].tokens:
            new[cap.at] = shorter
    return replace_messages(conversation, new, "exceeded", f"{len(new)} messages that did not fit the window")


def note_lost(fitted: Outcome, window: Window) -> Outcome:
    """The outcome, with a decision about what the client wants kept and for which there was no room."""
    messages, lost = fitted.conversation.messages, window.cut.lost if window.cut else 0
    number = lost + sum(messages[cap.at].keep for cap in window.caps)
    if not number:
        return fitted
    reason, tokens = f"{number} messages or steps that are to be kept did not fit", fitted.conversation.tokens
    decision = Decision(KEEP, reason, tokens, tokens, number, 0)
    return Outcome(fitted.conversation, (*fitted.decisions, decision), (*fitted.changed, ()))


def _find_places(messages: Sequence[Message], caps: Iterable[Cap], policy: Policy) -> dict[int, FoundResult]:
    results = {cap.at for cap in caps if messages[cap.at].role is Role.TOOL}
    if not results:
        return {}
    return {place.at: place for place in find_results(messages, policy, min(results)) if place.at in results}


def _work_out(message: Message, place: FoundResult | None, max_tokens: int, work: Work) -> Shortened:
    count = work.count
    tokens = sum(map(count, message.texts))
    # The cap minus what is not text. At least 1, because no text may become empty.
    limit = max(max_tokens - (message.tokens - tokens), 1)
    texts = message.texts
    if place is None:
        texts = share_ends(texts, limit, count, ASK_PART)
    else:
        tidied = edit_one(message, place, TIDY, work)
        result = Result(tidied, place.call, place.treatment)
        budget = Budget(limit, None if result.is_exempt else result.budget.max_bytes)
        texts = truncate_result(result, budget, count)
    return Shortened(texts, tokens - sum(map(count, texts)))


class Remainder(msgspec.Struct, frozen=True):
    """The part of a prompt that no rule removes, in our tokens.

    conversation: its messages; a message that would be shortened has the tokens that are left of it.
    frame_tokens: what a cut leaves of the removed messages at least; 0 if nothing is removed.
    excess_tokens: by how much the messages and the tools must be shorter; at least 1.
    head_tokens: the part of the excess that must come from the head, because a cut needs some room after it. The head
        is system messages at the beginning, tools, and the first user message.
    hard_limit: the size above which a request is refused.
    """

    conversation: Conversation
    frame_tokens: int
    excess_tokens: int
    head_tokens: int = 0
    hard_limit: int = 0

    @property
    def tokens(self) -> int:
        """The size of the prompt if everything is removed that a rule may remove."""
        return self.conversation.tokens + self.frame_tokens


def find_remainder(plan: Plan, current: Conversation, policy: Policy) -> Remainder:
    """The remainder for which the client must shorten least. `current`: what was left after compaction."""
    way = min(_find_ways(plan, current, policy), key=lambda way: way.excess_tokens)
    return structs.replace(way, hard_limit=plan.hard_limit)


def _find_ways(plan: Plan, current: Conversation, policy: Policy) -> Iterator[Remainder]:
    """One remainder for each way in which the request could be accepted: uncut, cut, and with shortened messages."""
    pinned = _pin(plan)
    uncut = current if plan.window.cut is None and not plan.window.caps else pinned
    yield Remainder(uncut, 0, max(uncut.tokens - plan.hard_limit, 1))
    leading = count_leading(pinned.messages)
    sums = Sums(leading, keeps_systems=policy.preserve_system is PreserveSystem.ALL)
    for message in pinned.messages:
        sums.add(message)
    start, kept = sums.open_step, pinned
    can_cut = policy.overflow_strategy is not OverflowStrategy.ERROR and sums.between(min(leading, start), start) > 0
    if can_cut:
        indexes = {*range(leading), *sums.fixed, *range(start, sums.number), sums.last_words, sums.task}
        kept = _keep(pinned, {at for at in indexes if at is not None and at >= 0})
    frame_tokens = SUMMARY_FRAME_TOKENS if can_cut else 0
    if can_cut and plan.window.cut is not None and not plan.window.caps:
        # The cut is made already, and shows what it leaves.
        frame_tokens = max(min(frame_tokens, current.tokens - kept.tokens), 0)
    task = None if sums.task is None else pinned.messages[sums.task]
    head = _Head(plan.limit, kept.fixed_tokens, kept.messages[:leading], task)
    if can_cut:
        head_tokens = head.excess(head.limit - head.limit * LEAST_ROOM_SHARE)
        excess_tokens = max(kept.tokens + frame_tokens - plan.hard_limit, head_tokens, 1)
        yield Remainder(kept, frame_tokens, excess_tokens, head_tokens)
    if policy.on_exceeded is OnExceeded.TRUNCATE:
        yield from _find_shortened(kept, pinned.messages[start:], head, frame_tokens)


class _Head(msgspec.Struct, frozen=True):
    """The head of a prompt planned for `limit`. Its size counts rounded up, as in window/room.py."""

    limit: int
    fixed_tokens: int
    leading: tuple[Message, ...]
    task: Message | None

    @property
    def grain(self) -> int:
        return max(self.limit // HEAD_STEPS, 1)

    @property
    def systems_tokens(self) -> int:
        return self.fixed_tokens + sum(message.tokens for message in self.leading)

    @property
    def tokens(self) -> int:
        return self.systems_tokens + (0 if self.task is None else self.task.tokens)

    def excess(self, most: float, *, without_task: bool = False) -> int:
        """By how much the head must be shorter to count as at most `most` tokens."""
        tokens = self.systems_tokens if without_task else self.tokens
        return max(tokens - int(most // self.grain) * self.grain, 0)


def _find_shortened(
    kept: Conversation, newest: tuple[Message, ...], head: _Head, frame_tokens: int
) -> Iterator[Remainder]:
    """The remainders if the newest results and user messages are shortened; in the second, the first user message too.

    The second needs the room that every head leaves to a cut. It is left out if that is not enough.
    """
    limit, task = head.limit, head.task
    behind = {id(message) for message in newest if message.role in {Role.TOOL, Role.USER} and message is not task}
    messages = [_lessen(message) if id(message) in behind else message for message in kept.messages]
    short = replace(kept, messages=tuple(messages))
    head_tokens = head.excess(limit - limit * LEAST_ROOM_SHARE)
    excess_tokens = max(short.tokens + frame_tokens - (limit - head.grain), head_tokens, 1)
    yield Remainder(short, frame_tokens, excess_tokens, head_tokens)
    rest_tokens = short.tokens - head.tokens + frame_tokens
    if task is None or rest_tokens > limit * LEAST_ROOM_SHARE:
        return
    most = limit - limit * MIN_ROOM_SHARE - least_tokens(task) - 1
    head_tokens = head.excess(most, without_task=True)
    if most >= 0:
        messages = [_lessen(message) if message is task else message for message in messages]
        short = replace(kept, messages=tuple(messages))
        yield Remainder(short, frame_tokens, max(head_tokens, 1), max(head_tokens, 1))


def _lessen(message: Message) -> Message:
    return replace(message, tokens=least_tokens(message))


def _pin(plan: Plan) -> Conversation:
    messages = list(plan.whole.messages)
    for pin in plan.pins:
        messages[pin.at] = replace(messages[pin.at], tokens=messages[pin.at].tokens + pin.tokens)
    return plan.whole.edit(messages)


def _keep(conversation: Conversation, indexes: set[int]) -> Conversation:
    places = sorted(indexes)
    messages = tuple([conversation.messages[at] for at in places])
    return replace(conversation, messages=messages, origins=tuple([conversation.origins[at] for at in places]))
