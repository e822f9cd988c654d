"""A transcript's running sums, extended message by message.

Law: append-only, but for messages of the open step that are shortened. Every figure is a function of what was added
so far, and each costs O(log n) at most.
"""

from array import array
from bisect import bisect_left

from rules.conversation import Message, Role, starts_step
from rules.window.images import NONE_REMOVED, ImageStop, ImageSums
from rules.window.prune import PLACEHOLDER_TOKENS

MAX_OPEN_WORDS = 8
"""Messages of the user, and of the system, that count as one request with the last of them. Chosen: clients put a
reminder or two behind what the user said; a transcript of such messages alone must be cut all the same."""


def _tokens(*values: int) -> "array[int]":
    return array("q", values)


class Sums:
    """Tokens of what stands behind the head. The head's own messages (the leading ones, the task) enter as nothing.

    `open_step` is where the step begins that the model has not answered: its newest tool results, with the words behind
    them; without any, the newest words of the user and the system since the last answer. Behind an answer it is that.
    """

    __slots__ = (
        "_full",
        "_has_results",
        "_leading",
        "_pruned",
        "_start_sums",
        "_starts",
        "_systems",
        "_user_sums",
        "_words",
        "images",
        "open_step",
        "task",
        "users",
    )

    def __init__(self, leading: int) -> None:
        self._leading = leading
        self.task: int | None = None
        self.open_step = 0
        self.images = ImageSums()
        self._has_results = False  # whether tool results have come since the last answer
        self._words = 0  # messages of others that have come since then
        self._full = _tokens(0)
        self._pruned = _tokens(0)  # the same with every result a placeholder, and every image a line
        self._systems = _tokens(0)
        self._starts = _tokens()
        self._start_sums = _tokens()
        self.users = _tokens()
        self._user_sums = _tokens(0)

    def __len__(self) -> int:
        return len(self._full) - 1

    def add(self, message: Message) -> int:
        """The next message; returns what it costs behind the head."""
        index = len(self)
        is_user = message.role is Role.USER
        is_task = is_user and self.task is None
        tokens = 0 if is_task or index < self._leading else message.tokens
        saving = self.images.add(index, message) if tokens and message.media else 0
        opens = starts_step(message) or index == 0
        if opens:
            self._starts.append(index)
            self._start_sums.append(self._full[-1])
        self._follow(message, index, opens=opens)
        if is_task:
            self.task = index
        if is_user:
            self.users.append(index)
            self._user_sums.append(self._user_sums[-1] + message.tokens - saving)
        self._full.append(self._full[-1] + tokens)
        self._pruned.append(self._pruned[-1] + (tokens - saving if opens else min(tokens, PLACEHOLDER_TOKENS)))
        self._systems.append(self._systems[-1] + (tokens if message.role is Role.SYSTEM else 0))
        return tokens

    def _follow(self, message: Message, index: int, *, opens: bool) -> None:
        """Where the open step begins, one message later."""
        if message.role is Role.ASSISTANT or (opens and not starts_step(message)):
            self.open_step, self._has_results, self._words = index, False, 0
        elif not opens:
            self._has_results = True
        elif not self._has_results:
            self._words += 1
            self.open_step = self._starts[-min(self._words, MAX_OPEN_WORDS)]

    @property
    def size_bytes(self) -> int:
        """What the sums hold in memory."""
        arrays = (self._full, self._pruned, self._systems, self._starts, self._start_sums, self.users)
        return sum(8 * len(values) for values in arrays) + 8 * len(self._user_sums) + self.images.size_bytes

    def between(self, start: int, stop: int) -> int:
        """Tokens of messages [start, stop)."""
        return self._full[stop] - self._full[start]

    def behind(self, start: int, prune_stop: int, images: ImageStop = NONE_REMOVED) -> int:
        """Tokens from message `start` to the end, results before `prune_stop` being placeholders.

        Images before their stop, which is nowhere before that, are lines.
        """
        middle = max(start, prune_stop)
        tokens = self._pruned[middle] - self._pruned[start] + self._full[-1] - self._full[middle]
        if start <= images.spared < middle:
            tokens += self.images.saved(images.spared, images.spared + 1)
        return tokens - self.images.saved_by(middle, images) if images.at else tokens

    def systems(self, start: int, stop: int) -> int:
        """Tokens of the system and developer messages in [start, stop)."""
        return self._systems[stop] - self._systems[start]

    def steps(self, start: int, stop: int) -> int:
        """How many steps begin in [start, stop)."""
        return bisect_left(self._starts, stop) - bisect_left(self._starts, start)

    def find_step(self, tokens: int, images: ImageStop = NONE_REMOVED) -> int:
        """Where the oldest step begins behind which at most `tokens` stay; the open one if none is that short."""
        rank = bisect_left(self._start_sums, self._full[-1] - tokens)
        if images.at:
            ranks = range(rank)  # what stays is less than that without images
            rank = bisect_left(ranks, -tokens, key=lambda each: -self.behind(self._starts[each], 0, images))
        return min(self._starts[min(rank, len(self._starts) - 1)], self.open_step)

    @property
    def last_words(self) -> int:
        """The newest user message; -1 if that is the task, or if there is none."""
        return self.users[-1] if self.users and self.users[-1] != self.task else -1

    def newest_answers(self, number: int) -> int:
        """Where the newest answered steps begin, so many before the open one; the first step if there are less."""
        rank = bisect_left(self._starts, self.open_step) - number
        return self._starts[max(rank, 0)] if self._starts else 0

    def shorten(self, at: int, saved_tokens: int, saving: int = 0) -> None:
        """Message `at`, behind the head and in the open step, costs so much less from now on.

        `saving` is what is saved at most without its images then.
        """
        less = self.images.shorten(at, saving)
        self._lower(self._full, at + 1, saved_tokens)
        self._lower(self._start_sums, bisect_left(self._starts, at + 1), saved_tokens)
        rank = bisect_left(self.users, at)
        if at in self.users[rank : rank + 1]:
            self._lower(self._pruned, at + 1, saved_tokens - less)
            self._lower(self._user_sums, rank + 1, saved_tokens - less)

    def _lower(self, sums: "array[int]", start: int, tokens: int) -> None:
        for index in range(start, len(sums)):
            sums[index] -= tokens

    def newest_users(self, at: int, budget: int) -> range:
        """Ranks of the newest user messages before `at` within `budget` tokens; never the first, which is the task.

        The newest of all is among them whatever it costs while no newer one stands behind `at`.
        """
        stop = bisect_left(self.users, at)
        first = bisect_left(self._user_sums, self._user_sums[stop] - budget)
        if stop == len(self.users) and first == stop:
            first = stop - 1
        return range(max(first, 1), max(stop, 1))

    def user_tokens(self, ranks: range) -> int:
        """What some user messages cost together, without their images."""
        return self._user_sums[ranks.stop] - self._user_sums[ranks.start] if ranks else 0
