"""A transcript's running token sums, extended message by message.

Law: append-only, except for messages that are shortened. Every figure is a function of the messages
added so far and costs at most O(log n), those of reminders a step for each of a bounded number.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from trimtab.rules.conversation import NOT_SERVED, Message, Role
from trimtab.rules.text.client_summaries import is_client_summary
from trimtab.rules.window.kept import Loaded, Reminders, Repeats
from trimtab.rules.window.prune import NONE_REMOVED, PLACEHOLDER_TOKENS, ImageStop, count_images, saving_tokens

MAX_OPEN_WORDS = 8
"""At most this many user and system messages in a row count as one open step, and so do results that are written as
text. Chosen: clients add a reminder or two after the user's message. Without a bound, a transcript of user messages or
of written results alone could never be cut."""

FIRST_SHARE = 8
"""The answer to the task statement stays if it costs at most low water / FIRST_SHARE. Chosen: only its role counts."""


def _tokens(*values: int) -> "array[int]":
    return array("q", values)


class Savings:
    """Which messages hold something that can be dropped, and what dropping it saves. Append-only.

    It is retrieved memory, which no other sum counts; or, as `ImageSums`, images.
    """

    __slots__ = ("_saved", "places")

    def __init__(self) -> None:
        self.places = _tokens()  # the indexes of these messages
        self._saved = _tokens(0)

    def add(self, index: int, tokens: int) -> None:
        if tokens > 0:
            self.places.append(index)
            self._saved.append(self._saved[-1] + tokens)

    def saved(self, start: int, stop: int) -> int:
        """Tokens saved by dropping what messages [start, stop) hold."""
        if not self.places or stop <= start:
            return 0
        return self._saved[bisect_left(self.places, stop)] - self._saved[bisect_left(self.places, start)]

    def behind(self, start: int) -> int:
        return self._saved[-1] - self._saved[bisect_left(self.places, start)]

    def find_stop(self, start: int, tokens: int) -> int:
        """Index up to which to drop, from `start` on, to save this many tokens.

        If all together saves less, one past the last message that holds something.
        """
        if not self.places:
            return 0
        rank = bisect_left(self._saved, self._saved[bisect_left(self.places, start)] + tokens)
        return self.places[min(max(rank, 1), len(self.places)) - 1] + 1


class ImageSums(Savings):
    """Which messages hold images, and what removing them saves. The newest messages may be shortened."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        super().__init__()
        self._numbers = _tokens(0)

    def add_message(self, index: int, message: Message) -> int:
        """Add the next message; return the tokens that removing its images saves."""
        saving = saving_tokens(message)
        if saving:
            self.add(index, saving)
            self._numbers.append(self._numbers[-1] + count_images(message))
        return saving

    def saved_by(self, start: int, images: ImageStop) -> int:
        saved = self.saved(start, images.at)
        return saved - self.saved(images.spared, images.spared + 1) if start <= images.spared < images.at else saved

    def number(self, start: int, stop: int) -> int:
        """Number of images in messages [start, stop)."""
        if not self.places or stop <= start:
            return 0
        return self._numbers[bisect_left(self.places, stop)] - self._numbers[bisect_left(self.places, start)]

    def find_newest(self, number: int) -> int:
        """Index of the message that holds the oldest of the newest `number` images; for 0, one past the last image."""
        if not self.places:
            return 0
        rank = bisect_left(self._numbers, max(self._numbers[-1] - number + 1, 1))
        return self.places[rank - 1] if rank <= len(self.places) else self.places[-1] + 1

    def shorten(self, at: int, saving: int) -> int:
        """Let removing the images of message `at` save at most `saving` from now on; return the difference."""
        rank = bisect_left(self.places, at)
        less = max(self.saved(at, at + 1) - saving, 0)
        if less:
            _lower(self._saved, {rank + 1: less})
        return less


class Spans:
    """The server's calls that wait for their results after the messages added so far.

    Everything from such a call to its result, which is in a later message, is one unit. A call that the model no longer
    speaks of, once the user has said something else, is not waited for any more.
    """

    __slots__ = ("_heard", "waiting")

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self._heard = False  # whether the user has spoken since the newest of them

    def add(self, message: Message) -> bool:
        """Add the next message; return whether it belongs to the unit of those before it."""
        served = message.served
        if not (self.waiting or served.opens):
            return False
        if message.role is Role.ASSISTANT and self._heard:
            self.waiting.intersection_update((*served.closes, *served.goes_on))
        is_bound = bool(self.waiting)
        self.waiting.difference_update(served.closes)
        self.waiting.update(served.opens)
        self._heard = (self._heard or message.role is Role.USER) and not served.opens and bool(self.waiting)
        return is_bound

    def give_up(self) -> None:
        self.waiting.clear()
        self._heard = False


class Sums:
    """Token sums of the messages after the head. The head's own messages (leading ones, task statement) count as 0.

    A tool result belongs to the step of its call. So does everything up to the result of a call that a server answers
    in a later message, unless that is more than `longest` tokens: then it could not be forwarded.

    Of results that are written as text right behind an answer, the first belongs to the step of the answer, and each of
    the others is a step. Elsewhere a written result is a step, and shows that the model has answered before it: the
    client only left that answer out.

    number: of the messages added so far.
    memory: the retrieved memory of all messages, the task statement's too. No other sum counts memory.
    newest_start: index at which the newest message's step begins.
    open_step: index at which the step begins that the model has not answered yet. That is the newest tool results and
        the messages after them; without results, the newest user and system messages since the last answer. If the
        transcript ends with an answer, it is that answer.
    fixed: indexes of the system messages after the beginning that every cut keeps. With `keeps_systems` these are all.
    opening: index of the client's own summary of an earlier session: the first such text of user or assistant after the
        task statement and before the first tool call or result, in a message without attachments; -1 if there is none.
    reminders: the other system messages after the beginning.
    """

    __slots__ = (
        "_full",
        "_has_calls",
        "_has_results",
        "_in_row",
        "_is_answer",
        "_keeps_systems",
        "_leading",
        "_longest",
        "_open_calls",
        "_pruned",
        "_spans",
        "_start_sums",
        "_starts",
        "_systems",
        "_user_sums",
        "_words",
        "fixed",
        "images",
        "loaded",
        "memory",
        "newest_start",
        "number",
        "open_step",
        "opening",
        "reminders",
        "repeats",
        "task",
        "task_images",
        "users",
    )

    def __init__(self, leading: int, *, keeps_systems: bool = False, longest: int | None = None) -> None:
        self.number = 0
        self._leading = leading
        self._longest = longest
        self._open_calls = 0  # of the newest message with calls
        self._spans = Spans()
        self._keeps_systems = keeps_systems
        self.task: int | None = None
        self.task_images = 0
        self.open_step = self.newest_start = 0
        self.images = ImageSums()
        self.memory = Savings()
        self._has_results = False  # whether tool results came after the last answer
        self._is_answer = False  # whether the last message is an answer of the model
        self._in_row = False  # whether the last messages are written results right behind an answer
        self._words = 0  # user and system messages and written results after the last answer
        self._full = _tokens(0)
        self._pruned = _tokens(0)  # the same if every result is pruned, every image removed and stale arguments short
        self._systems = _tokens(0)
        self.fixed = _tokens()
        self._has_calls = False  # whether there were tool calls or results
        self.opening = -1
        self.reminders = Reminders()
        self.repeats = Repeats()
        self.loaded = Loaded()
        self._starts = _tokens()
        self._start_sums = _tokens()
        self.users = _tokens()
        self._user_sums = _tokens(0)

    def add(self, message: Message, memory_tokens: int = 0, stale_tokens: int = 0) -> int:
        """Add the next message; return what it costs after the head (only its memory if it belongs to the head).

        `message` is without its retrieved memory, which would cost `memory_tokens` more. `stale_tokens`: what can be
        saved in the arguments of its step's calls because of it.
        """
        index, role = self.number, message.role
        self.number += 1
        if memory_tokens:
            self.memory.add(index, memory_tokens)
        is_user = role is Role.USER and index >= self._leading
        is_task = is_user and self.task is None
        tokens = 0 if is_task or index < self._leading else message.tokens
        saving = self.images.add_message(index, message) if tokens and message.media else 0
        stays = role is not Role.TOOL or index == 0
        stands_in = self._stands_in(message)
        is_bound = bool(self._spans.waiting or message.served is not NOT_SERVED) and self._is_bound(message, tokens)
        opens = not (is_bound or stands_in) and (stays or (not self._is_answer and message.is_written))
        if opens:
            self._starts.append(index)
            self._start_sums.append(self._full[-1])
            self.newest_start = index
        self._follow(message, index, opens=opens, stands_in=stands_in)
        if is_bound:
            self._words, self.open_step = 0, self._starts[-1]
        if is_task:
            self.task, self.task_images = index, count_images(message)
        elif self.opening < 0 and not self._has_calls and index >= self._leading:
            self._look_for_opening(message, index)
        if is_user:
            self.users.append(index)
            self._user_sums.append(self._user_sums[-1] + message.tokens - saving)
        self._full.append(self._full[-1] + tokens)
        bare = tokens - saving if stays or message.keep or message.loads else min(tokens, PLACEHOLDER_TOKENS)
        self._pruned.append(self._pruned[-1] + bare - stale_tokens)
        if message.keep or message.loads or message.tool_calls:
            self.loaded.add(self.newest_start, message)
        kept_tokens = self._keep_system(message, index) if role is Role.SYSTEM and index >= self._leading else 0
        self._systems.append(self._systems[-1] + kept_tokens)
        return tokens + memory_tokens

    @property
    def ends_with_answer(self) -> bool:
        return self._is_answer

    def shows_answer(self, message: Message) -> bool:
        """Whether the next message is an answer of the model, or shows that there was one before it."""
        if message.role is Role.TOOL and message.is_written:
            return not (self._is_answer or self._in_row or self._has_results)
        return message.role is Role.ASSISTANT

    def _stands_in(self, message: Message) -> bool:
        """Whether a message of an unknown role is the result of a call that waits for one."""
        waited = self._open_calls
        self._open_calls = len(message.tool_calls) or max(waited - 1, 0)
        return message.role is Role.OTHER and waited > 0 and not message.tool_calls

    def _is_bound(self, message: Message, tokens: int) -> bool:
        if not self._spans.add(message):
            return False
        unit_tokens = self._pruned[-1] - self._pruned[self._starts[-1]] + tokens
        is_bound = self._longest is None or unit_tokens <= self._longest
        if not is_bound:
            self._spans.give_up()
        return is_bound

    def _look_for_opening(self, message: Message, index: int) -> None:
        self._has_calls = bool(message.tool_calls) or message.role is Role.TOOL
        is_said = message.role in {Role.USER, Role.ASSISTANT} and not (self._has_calls or message.media)
        if is_said and any(map(is_client_summary, message.texts)):
            self.opening = index

    def _keep_system(self, message: Message, index: int) -> int:
        """Note a system message after the beginning; return its tokens if every cut keeps it."""
        if not (self._keeps_systems or message.stays):
            self.reminders.add(index, message)
            return 0
        self.fixed.append(index)
        return message.tokens

    def _follow(self, message: Message, index: int, *, opens: bool, stands_in: bool) -> None:
        is_tool = message.role is Role.TOOL
        is_written = is_tool and message.is_written
        is_result = stands_in or (is_tool and not is_written)
        if (not is_result and self.shows_answer(message)) or (opens and is_result):
            self.open_step, self._has_results, self._words = index, False, int(is_written)
        elif is_result:
            self.open_step, self._has_results = self._starts[-1], True
        elif not self._has_results:
            self._words += 1
            self.open_step = self._starts[-min(self._words, MAX_OPEN_WORDS, len(self._starts))]
        self._in_row = is_written and (self._is_answer or self._in_row)
        self._is_answer = message.role is Role.ASSISTANT

    @property
    def size_bytes(self) -> int:
        values = 3 * self.number + 2 * len(self._starts) + 2 * len(self.users) + len(self.fixed)
        kept_bytes = self.reminders.size_bytes + self.repeats.size_bytes + self.loaded.size_bytes
        return 8 * values + 24 * len(self.images.places) + 16 * len(self.memory.places) + kept_bytes

    def between(self, start: int, stop: int) -> int:
        """Tokens of messages [start, stop)."""
        return self._full[stop] - self._full[start]

    def behind(self, start: int, prune_stop: int, images: ImageStop = NONE_REMOVED) -> int:
        """Tokens from message `start` to the end, if results before `prune_stop` are placeholders.

        Images before `images.at` are replaced by markers; `images.at` is never less than `prune_stop`.
        """
        middle = max(prune_stop, start)
        tokens = self._pruned[middle] - self._pruned[start] + self._full[-1] - self._full[middle]
        if start <= images.spared < middle and self.images.places:
            tokens += self.images.saved(images.spared, images.spared + 1)
        return tokens - self.images.saved_by(middle, images) if images.at and self.images.places else tokens

    def find_chat_share(self, at: int) -> float:
        """User messages before message `at` for each other step, without the task statement and the first answer.

        1 in a chat, and at most; 0 in the session of an agent to which the user says no more.
        """
        said = max(bisect_left(self.users, at) - 1, 0)
        return min(said / max(self.steps(self._leading, at) - 2 - said, 1), 1.0) if said else 0.0

    def find_start(self, at: int) -> int:
        rank = bisect_right(self._starts, at)
        return self._starts[rank - 1] if rank else at

    def find_stop(self, start: int) -> int:
        rank = bisect_left(self._starts, start + 1)
        return self._starts[rank] if rank < len(self._starts) else self.number

    def begins_turn(self, at: int) -> bool:
        """Whether message `at` is the user's."""
        rank = bisect_left(self.users, at)
        return rank < len(self.users) and self.users[rank] == at

    def find_first_answer(self, at: int, low: int) -> list[tuple[int, int]]:
        """The step behind the task statement, if a user message at `at` would else follow that; none if it is long.

        low: low water.
        """
        start = self.number if self.task is None else self.task + 1
        if start + 1 >= at or not self.begins_turn(at):
            return []
        is_answer = self.find_stop(start) == start + 1 and not self.begins_turn(start)
        return [(start, start + 1)] if is_answer and self.between(start, start + 1) <= low // FIRST_SHARE else []

    def pruned(self, start: int, stop: int) -> int:
        """Tokens that pruning saves in messages [start, stop), whole steps."""
        return self.between(start, stop) - (self._pruned[stop] - self._pruned[start])

    def systems(self, start: int, stop: int) -> int:
        """Tokens of the `fixed` system messages in [start, stop)."""
        return self._systems[stop] - self._systems[start]

    def steps(self, start: int, stop: int) -> int:
        """How many steps begin in [start, stop)."""
        return bisect_left(self._starts, stop) - bisect_left(self._starts, start)

    def find_step(self, tokens: int, images: ImageStop = NONE_REMOVED) -> int:
        """Start of the oldest step from which at most `tokens` remain; the open step if none is short enough."""
        rank = bisect_left(self._start_sums, self._full[-1] - tokens)
        if images.at and self.images.places:
            ranks = range(rank)  # removed images only make what remains smaller, so the answer is in this range
            rank = bisect_left(ranks, -tokens, key=lambda each: -self.behind(self._starts[each], 0, images))
        return min(self._starts[min(rank, len(self._starts) - 1)], self.open_step)

    @property
    def last_words(self) -> int:
        """Index of the newest user message; -1 if there is none, or only the task statement."""
        return self.users[-1] if self.users and self.users[-1] != self.task else -1

    def newest_answers(self, number: int) -> int:
        """Start of the step `number` steps before the open one; the first step if there are fewer."""
        rank = bisect_left(self._starts, self.open_step) - number
        return self._starts[max(rank, 0)] if self._starts else 0

    def shorten(self, at: int, saved_tokens: int, saving: int = 0) -> None:
        """Message `at`, which is part of the open step, costs `saved_tokens` less from now on.

        `saving`: the most that removing its images can still save after that.
        """
        less = self.images.shorten(at, saving)
        _lower(self._full, {at + 1: saved_tokens})
        _lower(self._start_sums, {bisect_left(self._starts, at + 1): saved_tokens})
        rank = bisect_left(self.users, at)
        if at in self.users[rank : rank + 1]:
            _lower(self._pruned, {at + 1: saved_tokens - less})
            _lower(self._user_sums, {rank + 1: saved_tokens - less})

    def shorten_users(self, saved_tokens: Mapping[int, int]) -> None:
        """These user messages, by ascending index, cost that many tokens less from now on; their images stay."""
        behind = {at + 1: tokens for at, tokens in saved_tokens.items()}
        _lower(self._full, behind)
        _lower(self._pruned, behind)
        _lower(self._user_sums, {bisect_left(self.users, at) + 1: tokens for at, tokens in saved_tokens.items()})
        starts: dict[int, int] = {}
        for at, tokens in saved_tokens.items():
            rank = bisect_left(self._starts, at + 1)
            starts[rank] = starts.get(rank, 0) + tokens
        _lower(self._start_sums, starts)

    def newest_users(self, at: int, budget: int) -> range:
        """Ranks (positions in `users`) of the newest user messages before `at` that fit `budget` tokens.

        The task statement is never among them. The newest user message of the transcript always is if it lies before
        `at`, whatever it costs.
        """
        if not self.users[1:2]:
            return range(1, 1)
        stop = bisect_left(self.users, at)
        first = bisect_left(self._user_sums, self._user_sums[stop] - budget)
        if stop == len(self.users) and first == stop:
            first = stop - 1
        return range(max(first, 1), max(stop, 1))

    def user_tokens(self, ranks: range) -> int:
        return self._user_sums[ranks.stop] - self._user_sums[ranks.start] if ranks else 0


def _lower(sums: "array[int]", less: Mapping[int, int]) -> None:
    """Lower sums in one pass: by each of these numbers, from its place on. The places are ascending."""
    total, places = 0, [*less, len(sums)]
    for (start, tokens), stop in zip(less.items(), places[1:], strict=True):
        total += tokens
        for index in range(start, stop):
            sums[index] -= total
