"""Pins: after long tool output, one line repeats what the user wants and what the agent does next.

Law: a fold. The pin of a result depends only on the messages up to it, so it is replayed the same ever after. A step
gets at most one, behind its last result, and only if every call of the step has a result of its own. Pins come after
every other rule, so they change no outcome of theirs. A result keeps its pin if it was truncated or became a pointer;
it has none if it was pruned or cut. Text that the client or a tool put into a user message is no goal.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.rules.conversation import Conversation, Message, Outcome, Role, Telling, replace_messages
from trimtab.rules.policy import Policy
from trimtab.rules.results.work import Work
from trimtab.rules.summary.carried.task_list import OpenItem
from trimtab.rules.summary.quoting import quote_line
from trimtab.rules.text.client_summaries import find_memory, is_client_summary
from trimtab.rules.text.markers import mark_pin
from trimtab.rules.window.room import Cap, least_tokens

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
_COMMAND = re.compile(r"\s{0,80}/[\w:.-]{1,80}\s{0,80}\Z")
"""A command to the client alone, such as `/compact`."""
_TOOL_OUTPUT = re.compile(
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
TELLING = Telling(
    "tool result",
    "A reminder of the user's goal was appended to {what}, {saved}: long output makes a model forget it.",
)
Pinned = dict[int, tuple[Message, Message]]
"""By message index before any cut: the message, and the same message with its pin."""


@dataclass(frozen=True, slots=True)
class Pin:
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
        """Memory that this takes, in bytes, roughly. Messages are held elsewhere too."""
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
