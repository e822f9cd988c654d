"""The room that the head leaves for the conversation, and the open step, whose messages share it if they do not fit.

The room is the tokens of the limit without the head. The open step is the newest messages, which the model has not
answered yet.

Laws: small changes of the head (a timestamp, a tool that comes or goes) must not move a cut, so the head's size is
rounded up. The open step is a function of the messages added. If they fit, nothing is shortened. No message gets less
than a placeholder.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import msgspec
from msgspec import structs

from trimtab.rules.conversation import Conversation, Message, Role, count_leading
from trimtab.rules.policy import THRESHOLD_LOW, Policy
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS, saving_tokens


class Cap(msgspec.Struct, frozen=True):
    """Message `at` is forwarded with at most `tokens` tokens, with its frame and its attachments.

    If `tokens` is less than its attachments cost, its oldest images are removed too.
    """

    at: int
    tokens: int


class _Part(msgspec.Struct, frozen=True):
    at: int
    tokens: int
    least_tokens: int
    bare_tokens: int
    is_result: bool
    is_kept: bool


def least_tokens(message: Message) -> int:
    """The cost of a message if its texts are shortened as far as allowed; its attachments stay."""
    media_tokens = sum(part.tokens for part in message.media) if message.media else 0
    return min(message.tokens, PLACEHOLDER_TOKENS + media_tokens)


def bare_tokens(message: Message) -> int:
    """The cost of a message if its texts are shortened as far as allowed and its images are removed."""
    return least_tokens(message) - saving_tokens(message)


class OpenStep:
    """The tool results and user messages that no answer of the model has followed yet."""

    __slots__ = ("_parts", "_savings", "_seen", "_spares")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._spares = [0]  # [n]: tokens that the first n parts can lose in their texts
        self._savings = [0]  # [n]: tokens that the first n parts can lose in their images
        self._seen = 0  # messages of the whole transcript so far

    def add(self, message: Message, *, is_task: bool, shows_answer: bool) -> None:
        """Add the next message. The task statement is left out: window/room.py has its own rule for it.

        shows_answer: the message is an answer of the model, or shows that there was one before it.
        """
        is_result = message.role is Role.TOOL
        if shows_answer:
            self._parts.clear()
            self._spares = [0]
            self._savings = [0]
        if is_result or (message.role is Role.USER and not is_task):
            least = least_tokens(message)
            bare = bare_tokens(message) if message.media else least
            part = _Part(self._seen, message.tokens, least, bare, is_result, message.keep)
            self._parts.append(part)
            self._spares.append(self._spares[-1] + part.tokens - least)
            self._savings.append(self._savings[-1] + least - bare)
        self._seen += 1

    def spare_tokens(self, start: int, *, of_images: bool = False) -> int:
        """Tokens that the messages from `start` on can lose at most; with `of_images`, their images too."""
        # Prefix sums: adding up part by part would take quadratic time in a step of many thousand results.
        rank = bisect_left(self._parts, start, key=attrgetter("at"))
        images = self._savings[-1] - self._savings[rank] if of_images else 0
        return self._spares[-1] - self._spares[rank] + images

    def most_spare(self, start: int, excess: int) -> int:
        """Tokens that the messages from `start` on can lose; with their images if `excess` cannot be lost without."""
        spare_tokens = self.spare_tokens(start)
        return self.spare_tokens(start, of_images=True) if spare_tokens < excess else spare_tokens

    def saving_tokens(self, cap: Cap) -> int:
        rank = bisect_left(self._parts, cap.at, key=attrgetter("at"))
        return max(cap.tokens - self._parts[rank].bare_tokens, 0)

    def share_first(self, excesses: Sequence[int], start: int, *, takes_all: bool) -> tuple[Cap, ...]:
        """The caps that remove the first of these numbers of tokens that can be removed; images only if none can.

        With `takes_all`, everything that can go is removed if none of them can. Empty if nothing helps.
        """
        for of_images in (False, True):
            all_tokens = [self.spare_tokens(start, of_images=of_images)] if takes_all else []
            shared = (self.share(excess, start, of_images=of_images) for excess in (*excesses, *all_tokens))
            if (caps := next((caps for caps in shared if caps is not None), None)) is not None:
                return caps
        return ()

    def share(self, excess: int, start: int, *, of_images: bool = False) -> tuple[Cap, ...] | None:
        """Caps for the messages from `start` on, oldest first, that together remove `excess` tokens.

        None if these messages cannot lose that many. Results are shortened first, the largest most; user messages only
        if that is not enough, and last what the client wants kept. With `of_images`, images are removed as well, oldest
        first.
        """
        everything = [part for part in self._parts if part.at >= start]
        if of_images:
            return _drop_images(everything, excess)
        free = [part for part in everything if not part.is_kept]
        for parts in ([part for part in free if part.is_result], free, everything):
            if sum(part.tokens - part.least_tokens for part in parts) >= excess:
                return _level(parts, excess)
        return None


def _level(parts: Sequence[_Part], excess: int) -> tuple[Cap, ...]:
    """Cap all parts at one level: the highest at which at least `excess` tokens are removed."""
    low, high = 0, max((part.tokens for part in parts), default=0)
    while low < high:
        level = (low + high + 1) // 2
        if sum(part.tokens - _cap(part, level) for part in parts) >= excess:
            low = level
        else:
            high = level - 1
    return tuple(Cap(part.at, _cap(part, low)) for part in parts if _cap(part, low) < part.tokens)


def _drop_images(parts: Sequence[_Part], excess: int) -> tuple[Cap, ...] | None:
    """Shorten all texts as far as allowed, then remove images from the oldest messages on."""
    excess -= sum(part.tokens - part.least_tokens for part in parts)
    caps: list[Cap] = []
    for part in parts:
        less = min(max(excess, 0), part.least_tokens - part.bare_tokens)
        excess -= less
        if part.least_tokens - less < part.tokens:
            caps.append(Cap(part.at, part.least_tokens - less))
    return None if excess > 0 else tuple(caps)


def _cap(part: _Part, level: int) -> int:
    return min(part.tokens, max(part.least_tokens, level))


MIN_ROOM_SHARE = 0.25
"""Share of the limit. With less room, cuts would come at nearly every step. Then a cut is made only if the request
would not fit otherwise. Chosen: in a smaller room, high and low water are about one tool result apart."""
LEAST_ROOM_SHARE = 1 / 16
"""Share of the limit. With less room nothing is cut. Chosen: less room cannot hold a summary and one step."""
AGENT_SUMMARY_SHARE = 1 / 12
"""Share of the limit that a summary may have if the user has said nothing since the task statement. Chosen: a digest is
mostly what was said; what an agent needs is paths, names and commands, and the index has them. At a window of 8,192,
the steps that stay in its place had more of the names that agents needed next, and cuts came later.
"""
HEAD_STEPS = 64
"""The head's size is rounded up to a multiple of limit / 64. Chosen: larger than a timestamp. And about
one small step, so that a cut comes within a step of its threshold."""
GUESSED_SHARE = 0.25
"""Share of the limit. Guesses about the files between two answers count no more than that together. Chosen: as
MIN_ROOM_SHARE. A guess must not leave the conversation without room."""
PROTECTED_SHARE = 0.8
"""Share of high water. If the protected user turns are longer than this, they are pruned too. Chosen: an agent's
session is often a single user turn, which must not be protected whole."""


class Room(msgspec.Struct, frozen=True):
    """The tokens that the head leaves of `limit`: `early` before the first user message, `tokens` from then on.

    leading: number of leading messages, which always stay.
    spare: tokens that a request may have over the limit before its newest messages are shortened.
    task_tokens: what the task statement may cost if the head alone exceeds the limit; None if the head fits.
    soft: the room of the policy's soft limit after the head; None if there is none, or if the head leaves too little.
    late: the room after the task statement is shortened. The fold changes to it once the window is full, if the head
        fits but leaves no room for cuts. None if the head leaves enough room.
    """

    limit: int
    leading: int
    early: int
    tokens: int
    spare: int = 0
    task_tokens: int | None = None
    late: "Room | None" = None
    soft: int | None = None

    @classmethod
    def measure(
        cls,
        messages: Sequence[Message],
        fixed_tokens: int,
        limit: int,
        *,
        spare: int = 0,
        shortens: bool = False,
        soft_limit: int | None = None,
    ) -> "Room":
        """Measure the room that the head of these messages leaves.

        `fixed_tokens` is the cost of tools and other parts outside the messages. If `shortens` is true, the task
        statement may be shortened. `soft_limit` is the policy's own limit, if it is smaller than `limit`.
        """
        leading = count_leading(messages)
        head = fixed_tokens + sum(message.tokens for message in messages[:leading])
        task = next((message for message in messages[leading:] if message.role is Role.USER), None)
        early = leave_room(limit, head)
        if task is None:
            return cls(limit, leading, early, early, spare)
        whole = head + task.tokens
        room, capped = leave_room(limit, whole), None
        if shortens and (whole > limit + spare or room < limit * LEAST_ROOM_SHARE):
            cap = _cap_task(task, head, limit)
            capped = None if cap is None or cap >= task.tokens else cls(limit, leading, early, early - cap, spare, cap)
        if capped is not None and whole > limit + spare:
            return capped
        return cls(limit, leading, early, room, spare, late=capped, soft=_leave_soft(soft_limit, whole))


def bound_guesses(conversation: Conversation, limit: int) -> Conversation:
    """The conversation with lower guesses where the files between two answers are guessed above their share."""
    most_tokens = int(limit * GUESSED_SHARE)
    if conversation.guessed_tokens <= most_tokens:
        return conversation
    left, messages = most_tokens, list(conversation.messages)
    for index, message in enumerate(messages):
        left = most_tokens if message.role is Role.ASSISTANT else left
        if message.media:
            messages[index], left = _bound_message(message, left)
    return conversation.edit(messages)


def _bound_message(message: Message, left: int) -> tuple[Message, int]:
    """The message with guesses of `left` tokens at most, and what is left of these. An image stays above its line."""
    media = []
    for part in message.media:
        least = part.line_tokens + 1 if part.saving_tokens else 0
        over = min(max(part.guessed_tokens - left, 0), max(part.tokens - least, 0))
        left = max(left - part.guessed_tokens, 0)
        lower = structs.replace(part, tokens=part.tokens - over, guessed_tokens=part.guessed_tokens - over)
        media.append(lower if over else part)
    saved = sum(part.tokens for part in message.media) - sum(part.tokens for part in media)
    return (replace(message, media=tuple(media), tokens=message.tokens - saved) if saved else message), left


def _leave_soft(soft_limit: int | None, head: int) -> int | None:
    """The room after the head; None if cuts to a soft limit would come at nearly every step."""
    if soft_limit is None:
        return None
    room = leave_room(soft_limit, head)
    return room if room >= soft_limit * MIN_ROOM_SHARE else None


class Marks(msgspec.Struct, frozen=True):
    """The sizes at which the fold acts, in tokens after the head.

    tokens: the room.
    high, low: something is removed at high water, and low water is left then.
    least_gain: what a cut below the room must remove at least.
    protected: if the protected user turns are longer, they are pruned too.
    due: the size from which on a cut is made whether it pays or not: high water if it is a threshold, else a soft limit
        of the policy, else one token more than the room.
    """

    tokens: int
    high: int
    low: int
    least_gain: int
    protected: int
    due: int

    @classmethod
    def measure(cls, tokens: int, soft_tokens: int | None, policy: Policy) -> "Marks":
        """The marks of a room; `soft_tokens` is a size at which the policy cuts although the room would hold more."""
        high_tokens, low_tokens = int(tokens * policy.high_water), int(tokens * policy.low_water)
        due_tokens = high_tokens if policy.cuts_at_threshold else tokens + 1
        due_tokens = due_tokens if soft_tokens is None else min(due_tokens, soft_tokens)
        if due_tokens < high_tokens or (policy.compact_at_tokens is not None and due_tokens == soft_tokens):
            high_tokens = due_tokens
        if due_tokens == soft_tokens:
            low_tokens = min(low_tokens, int(due_tokens * THRESHOLD_LOW))
        gain, protected_tokens = (high_tokens - low_tokens) // 4, int(high_tokens * PROTECTED_SHARE)
        return cls(tokens, high_tokens, low_tokens, gain, protected_tokens, due_tokens)


def find_reserve(policy: Policy, limit: int, low: int, chat_share: float) -> int:
    """The most that a summary may have: the policy's bound and half of low water in a chat, less in an agent's session.

    chat_share: see `Sums.find_chat_share`.
    """
    most = policy.summary_max_tokens if policy.sections is None else int(limit * policy.sections.summary)
    most = min(policy.summary_max_tokens, most, low // 2)
    least = min(int(limit * AGENT_SUMMARY_SHARE), most)
    return least + int((most - least) * chat_share)


def _cap_task(task: Message, head: int, limit: int) -> int | None:
    """The most that the task statement may cost, in tokens; None if the rest of the head is too long by itself.

    It leaves MIN_ROOM_SHARE of the limit to the conversation. If the rest of the head is too long for that, the task
    gets all that is left of the limit. Its oldest images are removed if shortening its text is not enough. The head is
    rounded up, so a timestamp in it does not change the shortened text.
    """
    left = leave_room(limit, head)
    caps = (left - int(limit * MIN_ROOM_SHARE), left)
    return next((cap for cap in caps if cap >= bare_tokens(task)), None)


def leave_room(limit: int, head: int) -> int:
    """What a head leaves of the limit, the head rounded up."""
    grain = max(limit // HEAD_STEPS, 1)
    return limit - -(-head // grain) * grain
