"""What is appended to messages: pins, and passages of what was cut.

After long tool output, a pin repeats in one line what the user wants and what the agent does next. What a message names
is looked up in what was cut, and the best passages stand right behind that message.

Law: a fold. What stands behind a message depends only on the messages up to it, so it is replayed the same ever after,
and goes with its message at the next cut. A step gets at most one pin, behind its last result, and only if every call
of the step has a result of its own. Pins and passages come after every other rule, so they change no outcome of theirs.
A result keeps its pin if it was truncated or became a pointer; it has none if it was pruned or cut. Text that the
client or a tool put into a user message is no goal. Passages come from what the window before a message leaves out, or
is about to. No clock limits a search, because two replicas could then decide differently. The names and the text are
bounded instead, so that a search takes some milliseconds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trimtab.rules.conversation import Conversation, CountTokens, Message, Outcome, Role, Telling, replace_messages
from trimtab.rules.pipeline.shortening import Stale
from trimtab.rules.policy import Policy
from trimtab.rules.results.calls import tells_failure
from trimtab.rules.results.work import Archive, Work
from trimtab.rules.summary.names import find_names
from trimtab.rules.summary.quoting import break_markers, quote_line
from trimtab.rules.summary.task_list import OpenItem
from trimtab.rules.text.client_summaries import find_memory, is_client_summary
from trimtab.rules.text.late import compile_late
from trimtab.rules.text.markers import QUOTE_END, mark_pin, mark_recalled, strip_markers
from trimtab.rules.window.room import Cap, least_tokens
from trimtab.rules.window.state import Window

LONG_TOKENS = 2000
"""The results of a step that cost more than this together get a pin. Chosen: half of the default limit of one result,
and more than 100 lines. A pin costs some 40 to 100 tokens, so it adds at most about 5 % to what it follows."""
PIN = "pin"
PIN_BYTES = 1000
"""Memory of a pin. Chosen: above the size of its line, its object and its place in a list."""
GOAL_CHARS = 200
"""Maximum number of characters of a goal. Source: the design."""
CLIENT_TAGS = (
    "system-reminder", "environment_context", "environment_details", "user_instructions", "INSTRUCTIONS",
    "command-name", "command-message", "command-args", "local-command-caveat",
)  # fmt: skip
"""Tags around text that a client adds to the user's message. Source: Claude Code, Codex, Cline."""
_COMMAND = compile_late(r"\s{0,80}/[\w:.-]{1,80}\s{0,80}\Z")
"""A command to the client alone, such as `/compact`."""
_TOOL_OUTPUT = compile_late(
    r"""\s{0,80}(?:
    \[(?:tool|function)\b
    |<(?:tool|function)[_-](?:result|output|response)s?\b
    |<(?:local-command|bash)-(?:stdout|stderr|input)\b
    |\[?(?:tool|function)[ _](?:result|output|response)s?\b[^\n]{0,80}:
    |observation:
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""How frameworks begin a tool result that they write as text. Source: ReAct prompts, LangChain, Claude Code."""
PIN_TELLING = Telling(
    "tool result",
    "A reminder of the user's goal was appended to {what}, {saved}: long output makes a model forget it.",
)
Pinned = dict[int, tuple[Message, Message]]
"""By message index before any cut: the message, and the same message with its pin."""


class Pin(msgspec.Struct, frozen=True):
    """A line that is appended to the last text of result `at`, which then costs `tokens` more."""

    at: int
    line: str
    tokens: int


class Pins:
    """The pins of a transcript so far.

    leading: number of messages at the start that are skipped.
    """

    def __init__(self, leading: int) -> None:
        self._stop = leading  # the messages before this index have been read
        self._pins: dict[int, Pin] = {}
        self._goal = ""
        self._open_item = OpenItem()
        self._step: list[Message] = []

    @property
    def size_bytes(self) -> int:
        """Roughly, and without the messages, which are held elsewhere too."""
        return PIN_BYTES * (1 + len(self._pins)) + self._open_item.size_bytes

    def extend(self, messages: Sequence[Message], policy: Policy, work: Work) -> dict[int, Pin]:
        """Read the new messages of a paired transcript (pairing.py); return all pins, by the results' indexes.

        The messages are those to forward. Raises LargeWorkError; then this object must not be used again.
        """
        for index in range(self._stop, len(messages)):
            self._add(index, messages[index], policy, work)
        self._stop = max(self._stop, len(messages))
        return self._pins

    def _add(self, index: int, message: Message, policy: Policy, work: Work) -> None:
        if message.role is Role.TOOL:
            self._step.append(message)
        else:
            self._step = [message]
        if message.role is Role.USER:
            work.allowance.spend(sum(map(len, message.texts)))
            self._goal = find_goal(message, policy.memory_tags) or self._goal
        opener = self._step[0]
        if opener.role is not Role.ASSISTANT or len(self._step) != 1 + len(opener.tool_calls):
            return
        work.allowance.spend(sum(one.chars for one in self._step))
        self._open_item.add(self._step)
        if self._is_long() and self._goal and message.texts:
            line = mark_pin(self._goal, self._open_item.find())
            self._pins[index] = Pin(index, line, work.count(f"\n{line}"))

    def _is_long(self) -> bool:
        """Whether the results of the step are long together, and the client sent each of them."""
        results = self._step[1:]
        return all(result.raw for result in results) and sum(result.tokens for result in results) > LONG_TOKENS


def pin_results(
    conversation: Conversation,
    pins: Iterable[Pin],
    *,
    shift: int,
    known: Pinned | None = None,
    told: tuple[str, str] = (PIN, "reminders of the user's goal"),
) -> Outcome:
    """Append each pin to the last text of its result. A result that ends with its pin already stays.

    `shift` is added to the index of each pin: a summary may have replaced messages before the results. `known` holds
    messages that were pinned earlier; new ones are added to it. `told`: the name of the rule, and what it adds.
    """
    known = {} if known is None else known
    new: dict[int, Message] = {}
    for pin in pins:
        message = conversation.messages[pin.at + shift]
        before, pinned = known.get(pin.at, (None, message))
        if before is not message:
            pinned = _append(message, pin)
            known[pin.at] = message, pinned
        if pinned is not message:
            new[pin.at + shift] = pinned
    return replace_messages(conversation, new, told[0], f"{len(new)} {told[1]}")


def fit_pins(
    caps: Iterable[Cap], pins: Mapping[int, Pin], messages: Sequence[Message]
) -> tuple[list[Cap], dict[int, Pin]]:
    """The caps of the messages without their pins, and the pins that stay.

    A capped result keeps its pin if the rest of its cap is enough for the result. Else the pin goes.
    """
    kept = dict(pins)
    left: list[Cap] = []
    for cap in caps:
        pin = pins.get(cap.at)
        if pin is not None and cap.tokens - pin.tokens >= least_tokens(messages[cap.at]):
            left.append(replace(cap, tokens=cap.tokens - pin.tokens))
        else:
            kept.pop(cap.at, None)
            left.append(cap)
    return left, kept


def _append(message: Message, pin: Pin) -> Message:
    if not message.texts or message.texts[-1].endswith(pin.line):
        return message
    texts = (*message.texts[:-1], f"{message.texts[-1]}\n{pin.line}")
    return message.shorten(texts, -pin.tokens)


def find_goal(message: Message, memory_tags: Sequence[str]) -> str:
    """What a user message says, as one line of at most GOAL_CHARS characters; empty if it has no words.

    Retrieved memory, a client's additions, tool output and a client's summary of an earlier session are left out.
    """
    if message.role is not Role.USER:
        return ""
    line = quote_line(read_words(message, memory_tags), GOAL_CHARS)
    return line if any(map(str.isalnum, line)) else ""


def read_words(message: Message, memory_tags: Sequence[str]) -> str:
    """The user's own words in a message: no retrieved memory, no client's additions, no tool output, no summary."""
    tags = (*memory_tags, *CLIENT_TAGS)
    said = (_leave_out(text, tags) for text in message.texts if not is_client_summary(text))
    words = (text for text in said if not _TOOL_OUTPUT.match(text))
    return "\n".join(text for text in words if not _COMMAND.match(text)).strip()


def _leave_out(text: str, tags: Sequence[str]) -> str:
    pieces: list[str] = []
    stop = 0
    for start, end in find_memory(text, tags):
        pieces.append(text[stop:start])
        stop = end
    return "".join((*pieces, text[stop:])) if pieces else text


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
RECALL_TELLING = Telling(
    "message",
    "Passages from the removed messages were appended to {what}, {saved}: they share a rare name or word with it.",
)
_WORD = compile_late(r"\w[\w-]{2,62}\w")
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
