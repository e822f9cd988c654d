"""Rung 3: a tool result seen before becomes a pointer to the earlier one; one nearly seen before, a diff against it.

Law: what becomes of a result depends on the messages from `start` up to it and on nothing else. What a pointer points
to stands before it in full, letter for letter: it is no pointer itself, and not of the same step, for the last step
may be shortened still. Never longer than before, and always easier to read: a diff that saves little is not made.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from typing import Protocol, TypeVar
from zlib import crc32

from rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    Role,
    ToolCall,
    count_leading,
)
from rules.results.calls import OpenCalls
from rules.results.incremental import SeenMemo, keep_seen, take_seen, weigh_message
from rules.text.line_diff import write_diff
from rules.text.markers import POINTER, tells_omission

MIN_CHARS = 160
"""Some 40 tokens. A result that is no longer is left alone: a pointer costs 20 to 60."""
MIN_SAVED_SHARE = 0.5
"""Of a result's tokens: what a pointer or a diff must save."""
MAX_CHARS = 1024 * 1024
"""A longer result is left alone: comparing it would hold the interpreter too long."""
MAX_DIFF_CHARS = 128 * 1024
"""A diff of hostile texts of that length takes 30 ms, of others less than 5."""
MIN_LINE_CHARS = 16
"""On average. A text of shorter lines is not compared line by line: the time goes by lines, and must go by bytes."""
SKETCH_LINES = 8
MIN_SHARED = 0.25
"""Of a sketch: below it, more than half of the lines differ, nearly always."""
SEEN_BYTES = 1600
"""What a result costs beside its message: its place, and its sketch in the table of lines."""
NAME_CHARS = 64
ARGUMENTS_CHARS = 80
SHOWN = ", as far as both are shown"

K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class Memo(Protocol[K_contra, V]):
    """What was worked out before. Only a matter of speed: what it forgets is worked out again."""

    def get(self, key: K_contra, /) -> V | None:
        """What was kept under `key`, if anything."""

    def __setitem__(self, key: K_contra, value: V, /) -> None:
        """Keep it for as long as there is room."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """What tells whether texts are much alike: the least checksums of a text's lines. `digest` names the text."""

    digest: bytes
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memos:
    """Sketches by text, and diffs by the digests of the older and the newer text. They depend on no policy.

    `views` are what was found of whole transcripts.
    """

    sketches: Memo[str, Sketch]
    diffs: Memo[tuple[bytes, bytes], str]
    views: "SeenMemo[View] | None" = None


@dataclass(slots=True, eq=False)
class _Seen:
    """A result that stands in full, the `number`th from `start` on, and the call that it answers."""

    number: int
    message: Message
    call: ToolCall | None
    sketch: Sketch | None


def dedupe_tool_results(
    conversation: Conversation,
    *,
    start: int,
    count: CountTokens,
    is_exempt: Callable[[int], bool] = lambda _: False,
    memos: Memos | None = None,
) -> Outcome:
    """Replace results from message `start` on that repeat an earlier one from there on.

    `start` is the first message behind all that was pruned or cut. The result at an index that `is_exempt` is never
    replaced, but may be pointed to. `memos` may hold what earlier calls worked out.
    """
    memos = memos or Memos({}, {})
    messages = conversation.messages
    start = max(start, count_leading(messages))
    context = b"%d:" % start
    view = None if memos.views is None else take_seen(memos.views, context, messages, start)
    if view is None or not view.agrees(is_exempt):
        view = View(start)
    view.extend(messages, memos, count, is_exempt)
    outcome = view.apply(conversation)
    if memos.views is not None:
        keep_seen(memos.views, context, view)
    return outcome


class View:
    """The results that stand in full, from `start` on, and what became of the others: a fold over `messages`."""

    def __init__(self, start: int) -> None:
        self.messages: list[Message] = []
        self.size_bytes = 0
        self._start = start
        self._short: dict[int, Message] = {}
        self._exempt: dict[int, bool] = {}  # of those that would be replaced otherwise
        self._memos = Memos({}, {})
        self._number = 0
        self._calls = OpenCalls()
        self._equal: dict[tuple[str, ...], _Seen] = {}
        self._by_line: dict[int, _Seen] = {}  # the newest of those with the line in their sketch
        self._step: list[_Seen] = []

    def agrees(self, is_exempt: Callable[[int], bool]) -> bool:
        """Whether the same results are exempt."""
        return all(is_exempt(index) is known for index, known in self._exempt.items())

    def extend(
        self, messages: Sequence[Message], memos: Memos, count: CountTokens, is_exempt: Callable[[int], bool]
    ) -> None:
        """Go on to the end of a transcript. Where a memo raises, the view is of no use any more."""
        self._memos = memos
        first = self._start + len(self.messages)
        for index, message in enumerate(messages[first:], first):
            self.messages.append(message)
            self.size_bytes += weigh_message(message)
            call = self._calls.answer(message)
            if message.role is not Role.TOOL:
                self.begin_step()
                continue
            self.size_bytes += SEEN_BYTES
            seen = self.look_at(message, call)
            short = _replace(seen, self, count) if seen is not None else message
            if short is not message:
                self._exempt[index] = is_exempt(index)
            if short is not message and not self._exempt[index]:
                self._short[index] = short
                self.size_bytes += weigh_message(short)
            elif seen is not None:
                self.keep(seen)

    def apply(self, conversation: Conversation) -> Outcome:
        """What becomes of the conversation whose messages these are."""
        if not self._short:
            return Outcome(conversation)
        messages = list(conversation.messages)
        for index, short in self._short.items():
            messages[index] = short
        outcome = conversation.edit(messages)
        number = len(self._short)
        reason = f"{number} tool results like earlier ones"
        decision = Decision("dedupe", reason, conversation.tokens, outcome.tokens, number, next(iter(self._short)))
        return Outcome(outcome, (decision,))

    def begin_step(self) -> None:
        """From here on, what was kept may be pointed to."""
        for seen in self._step:
            self._equal.setdefault(seen.message.texts, seen)
            if seen.sketch is not None:
                self._by_line.update(dict.fromkeys(seen.sketch.lines, seen))
        self._step.clear()

    def look_at(self, message: Message, call: ToolCall | None) -> _Seen | None:
        """The next result, and its call; None where it is nothing to compare."""
        self._number += 1
        if not _is_comparable(message):
            return None
        sketch = None if message.texts in self._equal else self._sketch(message)
        return _Seen(self._number, message, call, sketch)

    def keep(self, seen: _Seen) -> None:
        """It stays as it is."""
        self._step.append(seen)

    def find_equal(self, seen: _Seen) -> _Seen | None:
        """The first one with the same texts."""
        return self._equal.get(seen.message.texts)

    def find_near(self, seen: _Seen) -> _Seen | None:
        """The one that shares the most of the sketch; None where all share little."""
        lines = () if seen.sketch is None else seen.sketch.lines
        found = [other for line in lines if (other := self._by_line.get(line)) is not None]
        if not found or len(found) < len(lines) * MIN_SHARED:
            return None
        most, shared = Counter(found).most_common(1)[0]
        return most if shared >= len(lines) * MIN_SHARED else None

    def diff(self, old: _Seen, new: _Seen) -> str:
        """What to change in the one to have the other; the empty text where that is no shorter."""
        if old.sketch is None or new.sketch is None:
            return ""
        key = (old.sketch.digest, new.sketch.digest)
        written = self._memos.diffs.get(key)
        if written is None:
            before, after = old.message.texts[0], new.message.texts[0]
            written = write_diff(before, after)
            written = self._memos.diffs[key] = written if len(written) < len(after) else ""
        return written

    def _sketch(self, message: Message) -> Sketch | None:
        if len(message.texts) != 1 or len(message.texts[0]) > MAX_DIFF_CHARS:
            return None
        text = message.texts[0]
        if message.edited and tells_omission(text):
            return None  # a diff would tell of markers that say another count, and of nothing else that is sure
        sketch = self._memos.sketches.get(text)
        if sketch is None:
            sketch = self._memos.sketches[text] = sketch_text(text)
        return sketch


def sketch_text(text: str) -> Sketch:
    """The same for the same text on every machine; without lines where they are too short to be worth it."""
    encoded = text.encode("utf-8", "surrogatepass")
    lines: Iterable[int] = ()
    if 0 < encoded.count(b"\n") * MIN_LINE_CHARS <= len(encoded):
        lines = nsmallest(SKETCH_LINES, set(map(crc32, filter(None, encoded.split(b"\n")))))
    return Sketch(sha256(encoded).digest(), tuple(lines))


def _is_comparable(message: Message) -> bool:
    is_of_size = MIN_CHARS < sum(map(len, message.texts)) <= MAX_CHARS
    return is_of_size and not message.media and not message.texts[0].startswith(POINTER)


def _replace(seen: _Seen, view: View, count: CountTokens) -> Message:
    """What is forwarded of a result; the same object where it stays."""
    message = seen.message
    target = view.find_equal(seen)
    text = "" if target is None else f"{_point(seen, target)}]"
    if target is None and (target := view.find_near(seen)) is not None and (changes := view.diff(target, seen)):
        text = f"{_point(seen, target)}, but for these lines:]\n{changes}"
    if not text:
        return message
    saved = sum(map(count, message.texts)) - count(text)
    if saved < message.tokens * MIN_SAVED_SHARE:
        return message
    return message.shorten((text,), saved)


def _point(seen: _Seen, target: _Seen) -> str:
    """Where it stands: counted in results from one to the other, which no later message changes, and by its call.

    Not by its id: most models never see ids, and clients use one twice. Of two that were shortened it is not known
    whether they were the same.
    """
    where = f"{POINTER}{seen.number - target.number} back"
    if seen.message.edited or target.message.edited:
        where += SHOWN
    if target.call is None:
        return where
    if seen.call is not None and (seen.call.name, seen.call.arguments) == (target.call.name, target.call.arguments):
        return f"{where}, of the same call"
    name, arguments = _clip(target.call.name, NAME_CHARS), _clip(target.call.arguments, ARGUMENTS_CHARS)
    return f"{where}, of {name} {arguments}".rstrip()


def _clip(text: str, max_chars: int) -> str:
    """The beginning of a text in one line of characters that can be seen."""
    start = text[:max_chars]
    if not start.isprintable():
        start = "".join(char if char.isprintable() else " " for char in start)
    return " ".join(start.split()) + ("..." if len(text) > max_chars else "")
