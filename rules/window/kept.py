"""What stays verbatim of the part that a cut removes: searches that loaded tools, reminders, and results of loops.

And what the client wants kept.

Law: append-only; a function of the messages added so far. Each question costs at most O(log n) for each message that is
kept; one about reminders, a step for each of the newest MAX_REMINDERS different ones.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain, islice

from trimtab.rules.conversation import Message

MAX_NAMES = 64
"""Number of tools whose steps are kept, those first that were called last, and of steps that the client wants kept, the
newest. Chosen: bounds the work of each decision."""
NAME_BYTES = 150
"""Memory of one name: an entry of a dictionary, and its text. An estimate for CPython, rounded up."""
MAX_REMINDERS = 1024
"""Number of newest different reminders that may be kept. Chosen: bounds the work of each decision; far more than agents
write. Measured: 50,000 took 15 s of processor time, with this bound 4."""
DIGEST_BYTES = 150
"""Memory of one digest: an entry of a dictionary, and an object of 32 bytes. An estimate for CPython, rounded up."""
REMOVALS = 3
"""A call that was made this many times in a row right after its result was removed is a loop. Source: the design of the
ladder: the same call three times after a cut."""
MAX_LOOPS = 16
"""Number of newest loops whose results are kept. Chosen: bounds the work of each decision."""
CALL_BYTES = 120
"""Memory of one call: a number of eight bytes as an object, and its entry. An estimate for CPython, rounded up."""


class Loaded:
    """The steps that loaded tools by a search, by the tools' names: the newest step of each.

    The model can call these tools only while the search is in the transcript.

    marked: the steps with messages that the client wants kept, oldest first.
    """

    __slots__ = ("_called", "marked", "steps")

    def __init__(self) -> None:
        self.marked = array("q")
        self.steps: dict[str, int] = {}  # the newest step last
        self._called: dict[str, None] = {}  # those of them that were called since then, the newest call last

    @property
    def size_bytes(self) -> int:
        return NAME_BYTES * (len(self.steps) + len(self._called)) + 8 * len(self.marked)

    def add(self, step: int, message: Message) -> None:
        if message.keep and self.marked[-1:] != array("q", (step,)):
            self.marked.append(step)
        for name in message.loads:
            self.steps.pop(name, None)
            self.steps[name] = step
        for call in message.tool_calls:
            if call.name in self.steps:
                self._called.pop(call.name, None)
                self._called[call.name] = None

    def list_marked(self, at: int) -> "array[int]":
        """The steps before `at` with messages that the client wants kept, oldest first."""
        return self.marked[: bisect_left(self.marked, at)]

    def list(self, at: int) -> Iterator[tuple[int, bool]]:
        """The steps that the client wants kept before `at`, then those with tools that were called, then the others.

        The newest of each come first, and each step once, with whether it is one of the first two kinds.
        """
        others = (name for name in reversed(self.steps) if name not in self._called)
        names = islice(chain(reversed(self._called), others), MAX_NAMES)
        found = dict.fromkeys(reversed(self.list_marked(at)[-MAX_NAMES:]), True)
        for name in names:
            found.setdefault(self.steps[name], name in self._called)
        return iter(found.items())


class Reminders:
    """System and developer messages after the beginning, and which of them are the newest of their kind.

    Equal reminders have the same digest (`Message.digest`: role, name and texts), so white space in the JSON or a cache
    marker does not make two of them differ.
    """

    __slots__ = ("_newest", "last")

    def __init__(self) -> None:
        self.last = -1  # index of the newest one
        self._newest: dict[bytes, tuple[int, int]] = {}  # by digest: index and tokens, the newest last

    @property
    def size_bytes(self) -> int:
        return DIGEST_BYTES * len(self._newest)

    def add(self, index: int, message: Message) -> None:
        self.last = index
        self._newest.pop(message.digest, None)
        self._newest[message.digest] = index, message.tokens
        if len(self._newest) > MAX_REMINDERS:
            del self._newest[next(iter(self._newest))]

    def fit(self, at: int, budget: int) -> tuple[int, int]:
        """Which reminders before message `at` are kept: the index of the oldest one, and the tokens of all of them.

        They are the newest of their kind, counted from the newest on, until the next one does not fit `budget`. A
        reminder that came again behind `at` is not kept before it.
        """
        oldest, kept_tokens = at, 0
        for index, tokens in reversed(self._newest.values()):
            if index < at:
                if kept_tokens + tokens > budget:
                    break
                oldest, kept_tokens = index, kept_tokens + tokens
        return oldest, kept_tokens

    def list(self, start: int, at: int) -> list[int]:
        """The indexes of the reminders in messages [start, at) that are the newest of their kind, oldest first."""
        return [index for index, _ in self._newest.values() if start <= index < at]


class Repeats:
    """The newest step and result of each different call, and the loops: calls that an agent makes again and again.

    A call counts if the result of the last equal call was just removed when it was made, and it has the same result
    again. Sessions in which no call is repeated after a removal have no loops. Calls are equal if name and arguments
    are. A call that was made before and now has another result is no loop: a test run, for example, is made again
    because something has changed.
    """

    __slots__ = ("_newest", "_open", "_step", "_times", "loops")

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, int]] = {}  # by call: the step, and the result
        self._open: dict[str, tuple[int, int | None]] = {}  # by id: the call, and its result that was removed
        self._step = 0
        self._times: dict[int, int] = {}
        self.loops: dict[int, int] = {}  # the step of the newest call, the newest loop last

    @property
    def size_bytes(self) -> int:
        return CALL_BYTES * (len(self._newest) + len(self._times) + len(self.loops))

    def add(self, index: int, message: Message, is_just_removed: Callable[[int], bool]) -> None:
        """Add the calls of message `index`.

        `is_just_removed` tells whether the last removal took the results of an earlier step. If it was one before, the
        agent did without them for a while: that is no loop.
        """
        self._open, self._step = {}, index
        for call in message.tool_calls:
            key = hash((call.name, call.arguments))
            newest = self._newest.get(key)
            if newest is not None and not (newest[0] < index and is_just_removed(newest[0])):
                newest = None
            self._open[call.id] = key, newest and newest[1]

    def answer(self, message: Message) -> None:
        """Add a result of the newest calls. A result that names no call by its id is left out."""
        key, removed = self._open.pop(message.answers or "", (None, None))
        if key is None:
            return
        # Python's hash is keyed, so nobody can construct an equal one, and a text remembers its own. A SHA-256 would
        # read each result once more, and it gives the interpreter away in between.
        result = hash("\n".join(message.texts))
        self._newest[key] = self._step, result
        self._times[key] = self._times.get(key, 0) + 1 if result == removed else 0
        if self._times[key] >= REMOVALS:
            self.loops.pop(key, None)
            self.loops[key] = self._step

    def list(self) -> Iterator[int]:
        """The steps of the newest loops, newest first, each once."""
        return iter(dict.fromkeys(islice(reversed(self.loops.values()), MAX_LOOPS)))
