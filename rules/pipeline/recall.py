"""Recall: what a message names is looked up in what was cut, and the best passages stand right behind that message.

Law: a fold, as pins are. What stands behind a message depends only on the messages up to it: the passages come from
what the window before it leaves out, or is about to. So it is replayed the same ever after, and goes with its message
at the next cut. No clock limits a search, because two replicas could then decide differently. The names and the text
are bounded instead, so that a search takes some milliseconds.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from trimtab.rules.conversation import CountTokens, Message, Role, Telling
from trimtab.rules.pipeline.arguments import Stale
from trimtab.rules.pipeline.pins import Pin, read_words
from trimtab.rules.policy import Policy
from trimtab.rules.results.calls import tells_failure
from trimtab.rules.results.work import Archive, Work
from trimtab.rules.summary.anchors.names import find_names
from trimtab.rules.summary.quoting import break_markers
from trimtab.rules.text.markers import QUOTE_END, mark_recalled, strip_markers
from trimtab.rules.window.state import Window

RECALL = "recall"
ROOM_SHARE = 0.04
"""The most that the passages behind one message may have of the room. Chosen: four or five passages at 16,000."""
MAX_TOKENS = 1500
"""The same in tokens. Chosen: less than half of the default limit of a tool result."""
LEAST_TOKENS = 120
"""With less room, nothing is looked up. Chosen: one passage with its frame."""
MAX_PASSAGES = 8
"""Chosen: a message that names more is about many things, and the passages would be a guess."""
PASSAGE_CHARS = 400
"""A passage ends at the first line break behind this many characters. Chosen: a paragraph, or some lines of a log."""
MAX_MESSAGE_CHARS = 256 * 1024
"""Part of a message that can be found. Chosen: a tool result of 60,000 tokens; it bounds the index."""
READ_CHARS = 4000
"""Part of a message, at its end, in which names are sought. Chosen: the last error of a log stands there."""
MAX_TERMS = 32
"""Names and words that are looked up. Chosen: each takes one search in the index, some microseconds."""
TELLING = Telling(
    "message",
    "Passages from the removed messages were appended to {what}, {saved}: they share a rare name or word with it.",
)
_WORD = re.compile(r"\w[\w-]{2,62}\w")
_SPEAKERS = {Role.USER: "the user", Role.ASSISTANT: "the assistant", Role.TOOL: "a tool", Role.SYSTEM: "the system"}


class Passage(NamedTuple):
    """A piece of message `at`, and who wrote it."""

    at: int
    source: str
    text: str

    def write(self) -> str:
        """The passage as it is quoted; nothing in it looks like a marker of ours."""
        return f"Message {self.at + 1}, {self.source}:\n{break_markers(self.text)}"


def find_fitting(found: Sequence[Passage], most: int, count: CountTokens) -> list[int]:
    """The ranks of the passages that fit, best first. One that does not fit is left out; a later one may."""
    left, fitting = most, list[int]()
    for rank, passage in enumerate(found):
        tokens = count(f"{passage.write()}\n")
        if tokens <= left:
            left -= tokens
            fitting.append(rank)
    return fitting


class Recalls:
    """What was removed of a transcript so far, and the passages that stand behind its messages.

    leading: number of messages at the start that always stay.
    pins: what stands behind messages, by their index.
    """

    def __init__(self, leading: int, archive: Archive) -> None:
        self.pins: dict[int, Pin] = {}
        self._leading = leading
        self._archive = archive
        self._passages: list[Passage] = []
        self._shown: dict[int, int] = {}  # by the number of a passage, the message behind which it stands
        self._stop = leading  # what is before this message was removed, or waits
        self._waiting: list[int] = []  # messages before `_stop` that are forwarded

    @property
    def size_bytes(self) -> int:
        """Memory that this takes, in bytes, roughly: the passages, and the index, which is as large."""
        return sum(2 * len(each.text) + 200 for each in self._passages) + 1000 * len(self.pins)

    def find(  # noqa: PLR0913 - what a request is decided by
        self,
        at: int,
        messages: Sequence[Message],
        window: Window,
        room: int,
        policy: Policy,
        work: Work,
        *,
        stale: Sequence[Stale] = (),
    ) -> None:
        """Look up what message `at` names; what is found stands behind it from now on.

        messages: the client's own, with paired calls. window: before this message. room: in tokens. stale: calls that
        are forwarded with short arguments where results are pruned.
        Raises LargeWorkError; then this object must not be used again.
        """
        most = min(int(ROOM_SHARE * room), MAX_TOKENS)
        message, stop = messages[at], _find_stop(window)
        if most < LEAST_TOKENS or stop <= self._leading or not message.texts:
            return
        terms = list_terms(message, policy)
        if not terms:
            return
        self._remove(messages, window, stop, work, {one.at for one in stale if one.made_at < window.prune_stop})
        floor = window.cut.at if window.cut else 0
        found = self._archive.search(terms, most=MAX_PASSAGES)
        said = _list_words(message.text)
        new = (each for each in found if not _list_words(self._passages[each].text) <= said)  # no earlier question
        best = [each for each in new if self._shown.get(each, -1) < floor]
        frame = f"\n{mark_recalled()}\n{QUOTE_END}"
        fitting = find_fitting([self._passages[each] for each in best], most - work.count(frame), work.count)
        if not fitting:
            return
        chosen = sorted(best[rank] for rank in fitting)
        quoted = "\n".join(self._passages[each].write() for each in chosen)
        line = f"{mark_recalled()}\n{quoted}\n{QUOTE_END}"
        self._shown.update(dict.fromkeys(chosen, at))
        self.pins[at] = Pin(at, line, work.count(f"\n{line}"))

    def _remove(
        self, messages: Sequence[Message], window: Window, stop: int, work: Work, short: AbstractSet[int]
    ) -> None:
        """Make everything searchable that is not forwarded any more."""
        candidates = [*self._waiting, *range(self._stop, stop)]
        self._stop, self._waiting = max(self._stop, stop), []
        for at in candidates:
            if at not in short and _is_forwarded(messages, window, at):
                self._waiting.append(at)
                continue
            new = list(read_passages(at, messages[at]))
            work.allowance.spend(sum(len(each.text) for each in new))
            self._archive.add([each.text for each in new])
            self._passages += new


def _find_stop(window: Window) -> int:
    """Where the part begins of which everything is forwarded, also if the next cut is made now."""
    cut = window.cut.at if window.cut else 0
    coming = window.next_cut if window.is_near and window.next_cut is not None else 0
    return max(cut, window.prune_stop, coming)


def _is_forwarded(messages: Sequence[Message], window: Window, at: int) -> bool:
    """Whether message `at`, which is before `_find_stop`, stands in the prompt."""
    cut, coming = window.cut, window.next_cut if window.is_near and window.next_cut is not None else 0
    if at == window.task:
        return True
    if cut is not None and at < cut.at:
        kept = any(start <= at < stop for start, stop in cut.kept_steps)
        return at in cut.kept or at in cut.kept_systems or kept or at == cut.opening
    return at >= coming and (messages[at].role is not Role.TOOL or at >= window.prune_stop)


def may_ask(message: Message) -> bool:
    """Whether what a message names is looked up: a user's message, and a tool's that tells of a failure."""
    if message.has_fixed_texts or not (message.raw and message.texts):
        return False
    return message.role is Role.USER or (message.role is Role.TOOL and tells_failure(message))


def list_terms(message: Message, policy: Policy) -> tuple[str, ...]:
    """The names at the end of a message, and in a user's the words; each once, names first."""
    said = read_words(message, policy.memory_tags) if message.role is Role.USER else "\n".join(message.texts)
    text = strip_markers(said[-READ_CHARS:])
    words = (word.lower() for word in _WORD.findall(text)) if message.role is Role.USER else ()
    return tuple(dict.fromkeys([*sorted(find_names(text)), *words]))[:MAX_TERMS]


def _list_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def read_passages(at: int, message: Message) -> Iterator[Passage]:
    """A message in pieces, with the arguments of its calls."""
    for call in message.tool_calls:
        for text in split_passages(call.arguments[:MAX_MESSAGE_CHARS]):
            yield Passage(at, "a call of a tool", text)
    source = _SPEAKERS.get(message.role, "another role")
    for text in split_passages("\n".join(message.texts)[:MAX_MESSAGE_CHARS]):
        yield Passage(at, source, text)


def split_passages(text: str) -> Iterator[str]:
    """The text in passages of whole lines. A line of more than twice PASSAGE_CHARS is cut, at a blank if it has one."""
    start = 0
    while start < len(text):
        stop = text.find("\n", start + PASSAGE_CHARS, start + 2 * PASSAGE_CHARS)
        if stop < 0 and len(text) - start > 2 * PASSAGE_CHARS:
            blank = text.rfind(" ", start + PASSAGE_CHARS, start + 2 * PASSAGE_CHARS)
            stop = blank if blank >= 0 else start + 2 * PASSAGE_CHARS
        stop = len(text) if stop < 0 else stop
        if piece := text[start:stop].strip():
            yield piece
        start = stop
