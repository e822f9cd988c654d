"""Rung 3: a tool result that repeats an earlier one becomes a pointer to it; one that nearly repeats it, a diff.

Law: the outcome for a result depends only on the messages from `start` up to it. A pointer refers to an earlier result
that is forwarded in full: not to another pointer, and not to a result of the same step, since the newest step may still
be shortened. A result never gets longer, and a diff that saves little is not made.

Earlier results that are like a new one are found by sketches (min-hashing). The same text has the same sketch on every
machine, and the time of a search does not grow with the number of results. A diff is a unified diff without context
lines, exact for any text, as lines end only at line feeds and each hunk's header counts the lines that follow it. It
takes n log n time at worst, and is not always the shortest one.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from zlib import crc32

import msgspec

from trimtab.rules.conversation import (
    Conversation,
    Message,
    Outcome,
    Role,
    Telling,
    ToolCall,
    count_leading,
    replace_messages,
)
from trimtab.rules.policy import Policy
from trimtab.rules.results.calls import OpenCalls
from trimtab.rules.results.work import Result, Sketch, Work, weigh_message
from trimtab.rules.text.markers import POINTER, mark_near, mark_same, tells_omission

MIN_LINE_CHARS = 16
"""If a text's lines are shorter on average, its sketch has no lines. Chosen: the time to compare texts grows with the
number of lines, and this bounds it by the number of bytes."""
SKETCH_LINES = 8  # Checksums in a sketch. Chosen: few, because each one is an entry in a table.


def sketch_text(text: str) -> Sketch:
    encoded = text.encode("utf-8", "surrogatepass")
    lines: Iterable[int] = ()
    if 0 < encoded.count(b"\n") * MIN_LINE_CHARS <= len(encoded):
        lines = sorted(set(map(crc32, filter(None, encoded.split(b"\n")))))[:SKETCH_LINES]
    return Sketch(sha256(encoded).digest(), tuple(lines))


class Hunk(msgspec.Struct, frozen=True):
    old_start: int
    old_stop: int
    new_start: int
    new_stop: int


def write_diff(old: str, new: str) -> str:
    """The hunks that turn `old` into `new`, from top to bottom; an empty text if the two are equal."""
    before, after = old.split("\n"), new.split("\n")
    written: list[str] = []
    for hunk in find_hunks(before, after):
        left = _span(hunk.old_start, hunk.old_stop)
        right = _span(hunk.new_start, hunk.new_stop)
        written.append(f"@@ -{left} +{right} @@")
        written.extend("-" + line for line in before[hunk.old_start : hunk.old_stop])
        written.extend("+" + line for line in after[hunk.new_start : hunk.new_stop])
    return "\n".join(written)


def _span(start: int, stop: int) -> str:
    """A range as `diff` writes it: the first line, from 1, and the number; an empty one names the line before it."""
    return f"{start + (stop > start)},{stop - start}"


def find_hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    """The hunks between two lists of lines, in order: a patience diff of one level.

    Anchors are lines that occur exactly once in both lists, in the same order. Equal lines at the start or at the end
    of the part between two anchors do not belong to a hunk.
    """
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    stops = (len(old) - tail, len(new) - tail)
    left, right = head, head
    for anchor in (*_find_anchors(old, new, head, stops), stops):
        while left < anchor[0] and right < anchor[1] and old[left] == new[right]:
            left, right = left + 1, right + 1
        left_stop, right_stop = anchor
        while left_stop > left and right_stop > right and old[left_stop - 1] == new[right_stop - 1]:
            left_stop, right_stop = left_stop - 1, right_stop - 1
        if left < left_stop or right < right_stop:
            yield Hunk(left, left_stop, right, right_stop)
        left, right = anchor


def _find_anchors(old: Sequence[str], new: Sequence[str], start: int, stops: tuple[int, int]) -> list[tuple[int, int]]:
    """The anchors (old index, new index), in order: the longest common subsequence of lines that are unique in both."""
    places = _find_unique(old, start, stops[0])
    pairs = [(places[line], right) for line, right in _find_unique(new, start, stops[1]).items() if line in places]
    # Patience sorting: for each length, the run that ends earliest in the old text: its end there, and its last pair.
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for number, (left, _) in enumerate(pairs):
        length = bisect_left(ends, left)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [left]
        last[length : length + 1] = [number]
    anchors: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        anchors.append(pairs[at])
        at = previous[at]
    return anchors[::-1]


def _find_unique(lines: Sequence[str], start: int, stop: int) -> dict[str, int]:
    """The index of each line that occurs exactly once in lines[start:stop]."""
    places: dict[str, int] = {}
    repeated: set[str] = set()
    for index in range(start, stop):
        line = lines[index]
        if line in places:
            repeated.add(line)
        places[line] = index
    for line in repeated:
        del places[line]
    return places


MIN_SHARED = 0.25
"""Share of a sketch's lines that two results must share. Chosen: two of eight lines. In a simulation with texts of 100
lines, 95 % of the pairs with 50 common lines share that many. A diff of less similar texts would save too little."""


class Compared(msgspec.Struct, eq=False):
    """A result, its call and its sketch. number: its rank, from 1. sketch: None if it is in no diff, or repeats one."""

    number: int
    message: Message
    call: ToolCall | None
    sketch: Sketch | None


class Index:
    def __init__(self) -> None:
        self._equal: dict[tuple[str, ...], Compared] = {}
        self._by_line: dict[int, Compared] = {}  # the newest result with the line in its sketch

    def add(self, result: Compared) -> None:
        self._equal.setdefault(result.message.texts, result)
        if result.sketch is not None:
            self._by_line.update(dict.fromkeys(result.sketch.lines, result))

    def find_equal(self, message: Message) -> Compared | None:
        return self._equal.get(message.texts)

    def find_near(self, sketch: Sketch | None) -> Compared | None:
        """The result that shares most lines with a sketch; None if none shares MIN_SHARED of them."""
        lines = () if sketch is None else sketch.lines
        found = [other for other in map(self._by_line.get, lines) if other is not None]
        if not found or len(found) < len(lines) * MIN_SHARED:
            return None
        most, shared = Counter(found).most_common(1)[0]
        return most if shared >= len(lines) * MIN_SHARED else None


MIN_CHARS = 160  # A result of at most this length stays unchanged: it has about 40 tokens, and a pointer costs 20 to 60
MIN_SAVED_SHARE = 0.5
"""Share of a result's tokens that a pointer or a diff must save. Chosen: a diff nearly as long as the text is harder to
read than the text."""
MAX_CHARS = 1024 * 1024  # A longer result stays unchanged. Chosen: comparing it would hold the interpreter too long.
MAX_DIFF_CHARS = 128 * 1024  # Longest text for a diff. Chosen: a diff of hostile texts takes 30 ms then.
DIFF_CHARS = 8 * 1024  # Characters that comparing two results takes from the allowance. Chosen.
RESULT_BYTES = 1600  # Memory of a result without its message: place and sketch. Chosen: a rough estimate.
NAME_CHARS = 64  # longest tool name in a pointer; longer than real ones
TELLING = Telling(
    "tool result",
    "{what} {was} like an earlier one that is still there, and became a pointer to it or the difference from it,"
    " {saved}.",
)
ARGUMENTS_CHARS = 80  # beginning of the arguments in a pointer; chosen: enough to recognise a call on one line


def dedupe_tool_results(conversation: Conversation, policy: Policy, *, start: int, work: Work) -> Outcome:
    """Replace results that repeat an earlier one, both behind the cut, from `start` on. Raises LargeWorkError."""
    view = View(max(start, count_leading(conversation.messages)))
    view.extend(conversation.messages, policy, work)
    return view.apply(conversation)


class View:
    """A fold over the messages from `start` on: which results are forwarded in full, and what replaces the others."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.size_bytes = 0
        self._messages: list[Message] = []
        self._short: dict[int, Message] = {}  # by index: what replaces a result
        self._index = Index()
        self._step: list[Compared] = []  # results of the newest step, to which no pointer may refer yet
        self._number = 0
        self._calls = OpenCalls()

    def is_beginning_of(self, messages: Sequence[Message]) -> bool:
        """Whether the transcript's messages from `start` on begin with those seen so far."""
        return self._messages == list(messages[self.start : self.start + len(self._messages)])

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> None:
        """Process the new messages of a transcript. After a LargeWorkError this object must not be used again."""
        first = self.start + len(self._messages)
        for index, message in enumerate(messages[first:], first):
            self._messages.append(message)
            call = self._calls.answer(message)
            if message.role is Role.TOOL:
                self.size_bytes += RESULT_BYTES
                self._add_result(index, message, call, policy, work)
            else:
                self._begin_step()

    def apply(self, conversation: Conversation) -> Outcome:
        """The conversation with its replaced results. It must consist of the messages seen so far."""
        return replace_messages(
            conversation, self._short, "dedupe", f"{len(self._short)} tool results like earlier ones"
        )

    def _begin_step(self) -> None:
        """A new step begins: from now on, pointers may refer to the results of the step before it."""
        for result in self._step:
            self._index.add(result)
        self._step.clear()

    def _add_result(self, at: int, message: Message, call: ToolCall | None, policy: Policy, work: Work) -> None:
        self._number += 1
        if not _is_comparable(message):
            return
        is_new = self._index.find_equal(message) is None
        result = Compared(self._number, message, call, _sketch(message, work) if is_new else None)
        short = _replace(result, self._index, work)
        if short is message or _is_kept(result, policy):
            self._step.append(result)
        else:
            self._short[at] = short
            self.size_bytes += weigh_message(short)


def _is_kept(result: Compared, policy: Policy) -> bool:
    """Whether a result stays: exempt, to be kept, or of a tool whose are not deduplicated. Pointers may refer to it."""
    message, call = result.message, result.call
    if message.keep:
        return True
    treatment = policy.find_treatment(call.name if call is not None else message.name or "")
    return not treatment.dedupe or Result(message, call, treatment).is_exempt


def _is_comparable(message: Message) -> bool:
    is_of_size = MIN_CHARS < sum(map(len, message.texts)) <= MAX_CHARS
    return is_of_size and not message.media and not message.texts[0].startswith(POINTER)


def _sketch(message: Message, work: Work) -> Sketch | None:
    """The sketch of a result that may take part in a diff; None for other results."""
    if len(message.texts) != 1 or len(message.texts[0]) > MAX_DIFF_CHARS:
        return None
    text = message.texts[0]
    if message.edited and tells_omission(text):
        return None  # a diff would compare the counts in markers, not the lines that they stand for
    sketch = work.sketches.get(text)
    if sketch is None:
        work.allowance.spend(len(text))
        sketch = work.sketches[text] = sketch_text(text)
    return sketch


def _diff(old: Compared, new: Compared, work: Work) -> str:
    """The changes that make `new` of `old`; empty if they are not shorter than `new`."""
    if old.sketch is None or new.sketch is None:
        return ""
    key = (old.sketch.digest, new.sketch.digest)
    written = work.diffs.get(key)
    if written is None:
        work.allowance.spend(DIFF_CHARS)
        before, after = old.message.texts[0], new.message.texts[0]
        written = write_diff(before, after)
        written = work.diffs[key] = written if len(written) < len(after) else ""
    return written


def _replace(result: Compared, index: Index, work: Work) -> Message:
    """The result as a pointer or a diff; the same object if it stays unchanged."""
    message, equal = result.message, index.find_equal(result.message)
    target = equal or index.find_near(result.sketch)
    changes = "" if equal or target is None else _diff(target, result, work)
    if target is None or not (equal or changes):
        return message
    as_shown = message.edited or target.message.edited  # the parts that were left out may differ
    place = _point(result, target)
    text = mark_same(*place, as_shown=as_shown) if equal else mark_near(*place, changes, as_shown=as_shown)
    saved = sum(map(work.count, message.texts)) - work.count(text)
    return message if saved < message.tokens * MIN_SAVED_SHARE else message.shorten((text,), saved)


def _point(result: Compared, target: Compared) -> tuple[int, str]:
    """How many results back the target is (1: the one before this one), and the call that it answers.

    The number of results between the two never changes. The id is not used: most models never see ids, and clients
    reuse them.
    """
    back = result.number - target.number
    if target.call is None:
        return back, ""
    call, other = result.call, target.call
    if call is not None and (call.name, call.arguments) == (other.name, other.arguments):
        return back, "the same call"
    name, arguments = _clip(other.name, NAME_CHARS), _clip(other.arguments, ARGUMENTS_CHARS)
    return back, f"{name} {arguments}".rstrip()


def _clip(text: str, max_chars: int) -> str:
    """The beginning of a text, on one line and with printable characters only."""
    start = text[:max_chars]
    if not start.isprintable():
        start = "".join(char if char.isprintable() else " " for char in start)
    return " ".join(start.split()) + ("..." if len(text) > max_chars else "")
