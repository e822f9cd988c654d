"""Write what code carries over a cut: the task list, instruction files and the index of names.

Laws: the text is a function of the messages that were there when the cut was made, of the cut, and of the policy. What
is cached for the next request of the same transcript saves time and changes nothing else.

The index has what is still running, errors, files, calls, related lines, lines of code, and names by their form. It is
never larger than its budget. All of it is in one quotation, with markers in it broken, so that tool output gains no
authority here. Only the user's corrections stand before the quotation, as the user's words. Names in the tail or in
verbatim messages are not repeated.

Lines are carried word for word, because a model's note may have lost what the user corrected, and because a model
writes the same script again with small changes. A sentence of the user is taken whole or left out. Of code, the newest
call comes first, the lines of a call in their order. A line is whole and has a name that the reader does not see yet.
No line comes twice, and none that is in the calls of the tail. Linear, and only READ_CHARS characters are read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec
from msgspec.json import encode
from msgspec.structs import replace

from trimtab.rules.conversation import CountTokens, Message, Role, count_leading
from trimtab.rules.summary.digest import find_open_errors, find_steps
from trimtab.rules.summary.instruction_files import find_instruction_files, write_instruction_files
from trimtab.rules.summary.names import (
    READ_CHARS,
    Kind,
    Mentions,
    find_echoes,
    find_kind,
    find_names,
    rank_names,
    read_arguments,
    read_mentions,
)
from trimtab.rules.summary.quoting import break_markers, quote_line
from trimtab.rules.summary.running import find_running
from trimtab.rules.summary.statements import find_statements, shorten
from trimtab.rules.summary.task_list import find_task_list, leave_out_lists, write_task_list
from trimtab.rules.text.late import compile_late, read_table
from trimtab.rules.text.markers import CODE_TITLE, CORRECTIONS_TITLE, ECHOES_TITLE, NAMES_TITLE, QUOTE_END, QUOTE_START
from trimtab.rules.window.state import Cut

SHOWN_CHARS = 200  # A longer sentence is left out. Chosen: the index has room for a few sentences.
ASKED_WEIGHT = 0.3  # Least weight of what the user asks to remember. Chosen: it may be a word of everyday life.
LEAST_WEIGHT = 0.6  # Of a correction. Chosen: it names something, which "no, thanks" does not.
_CORRECTS = compile_late(read_table(__name__)["corrects"], re.VERBOSE | re.IGNORECASE)


def find_corrections(messages: Sequence[Message]) -> Iterator[tuple[str, bool]]:
    """Yield the user's corrections and what the user asks to remember (True), as single lines, the newest first."""
    said, _ = find_statements(messages)
    for one in reversed(said.statements):
        if len(one.text) > SHOWN_CHARS or one.text.endswith(("?", "？", ":", "：")):
            continue
        is_asked = one.text in said.census.asked
        corrects = is_asked or _CORRECTS.search(one.text) is not None
        if corrects and said.census.weigh(one.text, one.words) >= (ASKED_WEIGHT if is_asked else LEAST_WEIGHT):
            yield quote_line(shorten(one.text, said.census), SHOWN_CHARS + 1), is_asked


LINE_CHARS = 200  # A longer line is left out. Chosen: it is data.
VALUE_CHARS = 20_000  # Characters read of one argument. Chosen: more than the index has room for.


def find_code(
    removed: Sequence[Message], tail: Sequence[Message], present: AbstractSet[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the lines of code in each message's calls with a name that is not `present`, the newest message first."""
    seen = {line.strip() for message in tail for line in _find_lines(message)}
    left = READ_CHARS
    for message in reversed(removed):
        left -= sum(len(call.arguments) for call in message.tool_calls)
        if left < 0:
            return
        lines: list[str] = []
        for line in _find_lines(message):
            if (bare := line.strip()) not in seen and find_names(bare) - present:
                seen.add(bare)
                lines.append(line)
        if lines:
            yield tuple(lines)


def _find_lines(message: Message) -> Iterator[str]:
    """The lines with their indentation, safe to quote; not those that are too long."""
    for value in read_arguments(message.tool_calls):
        lines = value[:VALUE_CHARS].split("\n")
        for line in lines if len(lines) > 1 else ():
            bare = line.strip()
            if bare and len(bare) <= LINE_CHARS:
                indent = len(line) - len(line.lstrip())
                yield " " * min(indent, LINE_CHARS) + quote_line(bare, LINE_CHARS * 2)


MIN_TOKENS = 80  # With a smaller budget there is no index. Chosen: it would hold little more than its frame.
DEED_MESSAGES = 256  # Files, calls and errors are of the newest removed messages. Chosen: there is no more room.
DEEDS_SHARE = 0.2  # Share of the budget for errors, files and calls. Chosen.
RUNNING_SHARE = 0.25  # Share of the budget for what is still running. Chosen: it is rare, and its ids are nowhere else.
CORRECTIONS_SHARE = 0.05  # Of the budget. Chosen: the newest user messages are kept verbatim anyway.
ASKED_SHARE = 0.4  # The same for what the user asks to remember. Chosen: a model's note may have lost it.
ECHOES_SHARE = 0.3
"""Share of the budget for lines that share rare words with the tail. Measured on planted facts: with 0.12, half as many
are found; needed identifiers rise by 0.1 points (docs/architecture/decisions.md)."""
CODE_SHARE = 0.25  # Share of the budget for lines of code. Measured: docs/architecture/decisions.md.
_SEPARATORS = {Kind.PATH: " ", Kind.SYMBOL: " ", Kind.URL: ", ", Kind.NUMBER: ", "}
"""What stands between two names. A space costs no token, but an address or a number may have a label before it."""


class Removed(msgspec.Struct, frozen=True):
    """The material of the index.

    - `messages`: the removed messages, without those that are forwarded verbatim.
    - `mentions`: the names in all messages before the cut.
    - `present`: names that the reader sees already; they are not repeated.
    - `is_told`: a digest precedes the index and lists errors, files and calls itself.
    - `tail`: the messages after the cut when it was made. What they end is no longer running.
    """

    messages: Sequence[Message]
    mentions: Sequence[Mentions]
    present: AbstractSet[str]
    is_told: bool = False
    tail: Sequence[Message] = ()


def write_anchors(removed: Removed, *, max_tokens: int, count: CountTokens) -> str:
    """Write the index, at most `max_tokens`; empty if it has no content or too little room."""
    frame = f"{QUOTE_START}\n> {NAMES_TITLE}\n{QUOTE_END}"
    room = max_tokens - count(frame)
    if max_tokens < MIN_TOKENS:
        return ""
    running = find_running(removed.messages, removed.tail)[::-1]
    told = _write_rows("still running", running, int(room * RUNNING_SHARE), count)
    corrections = ""
    if not removed.is_told:
        corrections = _write_corrections(removed.messages, room, count)
        told += _write_deeds(removed.messages[-DEED_MESSAGES:], int(room * DEEDS_SHARE), count)
    told += _write_echoes(removed, int(room * ECHOES_SHARE), count)
    left = room - count(corrections) - sum(count(f"> {line}\n") for line in told)
    code = _write_code(removed, min(int(room * CODE_SHARE), left), count)
    room = _leave_out_last(told := [*told, *code], left - sum(count(f"> {line}\n") for line in code), count)
    removed = replace(removed, present=removed.present | find_names("\n".join((corrections, *told))))
    names = _rank(removed, max(room, 0), count)
    # The count of the whole text differs a little from the sum of its parts, so the first attempt may be too long.
    for _ in range(8):
        lines = [*told, *_write_names(names, room, count)]
        text = f"{QUOTE_START}\n> {NAMES_TITLE}\n" + "".join(f"> {break_markers(line)}\n" for line in lines) + QUOTE_END
        text = corrections + text if lines else corrections.rstrip()
        excess = count(text) - max_tokens
        if excess <= 0:
            return text
        room = _leave_out_last(told, room - excess, count)
    return ""


def _leave_out_last(told: list[str], room_tokens: int, count: CountTokens) -> int:
    """Leave out the last lines until the others fit, since the shares add up to more than all; returns what is left."""
    while told and (room_tokens < 0 or told[-1] in {ECHOES_TITLE, CODE_TITLE}):
        room_tokens += count(f"> {told.pop()}\n")
    return room_tokens


def _write_corrections(messages: Sequence[Message], budget_tokens: int, count: CountTokens) -> str:
    """As many of the user's newest corrections and of what is to be remembered as have room, oldest first."""
    title_tokens = count(f"## {CORRECTIONS_TITLE}\n\n")
    shares = {False: CORRECTIONS_SHARE, True: ASKED_SHARE}
    left = {is_asked: int(budget_tokens * share) - title_tokens for is_asked, share in shares.items()}
    lines: list[str] = []
    for line, is_asked in find_corrections(messages):
        left[is_asked] -= count(f"- {line}\n")
        if left[is_asked] >= 0:
            lines.append(f"- {line}\n")
        elif max(left.values()) < 0:
            break
    return f"## {CORRECTIONS_TITLE}\n{break_markers(''.join(reversed(lines)))}\n" if lines else ""


def _take(rows: Iterable[str], form: str, room_tokens: int, count: CountTokens) -> list[str]:
    """The rows for which there is room, up to the first that does not fit. `form`: how a row is written."""
    taken: list[str] = []
    for row in rows:
        room_tokens -= count(form.format(row))
        if room_tokens < 0:
            break
        taken.append(row)
    return taken


def _write_echoes(removed: Removed, room_tokens: int, count: CountTokens) -> list[str]:
    echoes = find_echoes(removed.messages, removed.tail, removed.present)
    lines = _take(echoes, "> {}\n", room_tokens - count(f"> {ECHOES_TITLE}\n"), count)
    return [ECHOES_TITLE, *lines] if lines else []


def _write_code(removed: Removed, room_tokens: int, count: CountTokens) -> list[str]:
    """A line for each call, the newest first: its lines of code as one JSON string, as the call itself has them."""
    rows: list[str] = []
    room_tokens -= count(f"> {CODE_TITLE}\n")
    messages = [leave_out_lists(message) for message in removed.messages[-DEED_MESSAGES:]]
    for lines in find_code(messages, removed.tail, removed.present):
        taken: list[str] = []
        for line in lines:
            room_tokens -= count(encode(f"\n{line}").decode()[1:-1])
            if room_tokens < 0:
                break
            taken.append(line)
        rows += [encode("\n".join(taken)).decode()] if taken else []
        if len(taken) < len(lines):
            break
    return [CODE_TITLE, *rows] if rows else []


def _rank(removed: Removed, most: int, count: CountTokens) -> list[tuple[Kind, str]]:
    """At most `most` names with their kinds, the most likely to be needed first.

    A name is written after its label if it has one. `most` may be the budget, as no name costs less than a token.
    """
    labels: dict[str, str] = {}
    for mentions in removed.mentions:
        labels.update(mentions.labels)
    ranked = rank_names(removed.mentions, without=removed.present, most=most, count=count)
    return [(find_kind(name), f"{labels[name]} {name}" if name in labels else name) for name in ranked]


def _write_names(ranked: Sequence[tuple[Kind, str]], room_tokens: int, count: CountTokens) -> list[str]:
    """A line for each kind of name, with as many names as there is room for."""
    kinds: dict[Kind, list[str]] = {}
    for kind, told in ranked:
        cost = count(f"{_SEPARATORS[kind]}{told}")
        cost += 0 if kind in kinds else count(f"> {kind}: \n")
        if cost > room_tokens:
            break
        room_tokens -= cost
        kinds.setdefault(kind, []).append(told)
    return [f"{kind}: {_SEPARATORS[kind].join(names)}" for kind in Kind if (names := kinds.get(kind))]


def _write_deeds(messages: Sequence[Message], room_tokens: int, count: CountTokens) -> list[str]:
    """Lines with unresolved errors, files and calls, the newest of each."""
    steps = find_steps([leave_out_lists(message) for message in messages])
    groups = (
        ("unresolved errors", list(reversed(find_open_errors(messages))), 0.3),
        ("files", [steps.files[index] for index in steps.order], 0.6),
        ("calls", list(reversed(steps.calls)), 1.0),
    )
    lines: list[str] = []
    for title, rows, share in groups:
        for line in _write_rows(title, rows, int(room_tokens * share), count):
            lines.append(line)
            room_tokens -= count(f"> {line}\n")
    return lines


def _write_rows(title: str, rows: Sequence[str], room_tokens: int, count: CountTokens) -> list[str]:
    """One line with as many of the rows as there is room for; no line if there is room for none."""
    taken = _take(rows, "; {}", room_tokens - count(f"> {title}: \n"), count)
    return [f"{title}: {'; '.join(taken)}"] if taken else []


MAX_TEXTS = 4
"""Maximum number of cuts whose text is cached. Chosen: while the summary of the newest cut is written, requests use
earlier cuts."""
Spend = Callable[[int], None]
"""A function that is called with a number of characters before they are read. It may raise an error to end the work."""
LIST_SHARE = 0.5  # The task list's share of what is carried. Chosen: an agent misses the list more than all else.
FILES_SHARE = 0.5
"""The instruction files' share of what the task list leaves. A file that does not fit becomes a line that says to read
it again. Chosen: the other half stays for the index of names."""


class Carried(msgspec.Struct, frozen=True):
    """Everything that the text carried over a cut depends on, except for the messages.

    `task` is the index of the task statement, which is forwarded verbatim; None if there is none. `instruction_files`
    are globs on file names. `told` is the cut's digest, which lists files and calls itself; empty if a model wrote the
    summary.
    """

    cut: Cut
    task: int | None
    instruction_files: tuple[str, ...] = ()
    told: str = ""


class Anchors:
    """A cache for one transcript: the names in its messages, as far as cuts needed them, and the texts made of them."""

    __slots__ = ("_mentions", "_messages", "_texts", "size_bytes")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._messages: list[Message] = []
        self._mentions: list[Mentions] = []
        self._texts: dict[Carried, str] = {}
        self.size_bytes = 0

    def find(self, messages: Sequence[Message], place: Carried, *, count: CountTokens, spend: Spend) -> str:
        """Return the text that is carried over a cut; empty if there is nothing to carry.

        `spend` is called before characters are read; some of them are counted twice because they are read twice.
        """
        if self._messages != list(messages[: len(self._messages)]):
            self._forget()
        text = self._texts.get(place)
        if text is None:
            self._read(messages[: place.cut.made_at], spend)
            spend(2 * min(sum(one.chars for one in messages[: place.cut.at]), READ_CHARS))
            text = self._texts[place] = self._write(place, count)
            self.size_bytes += len(text)
            while len(self._texts) > MAX_TEXTS:
                self.size_bytes -= len(self._texts.pop(next(iter(self._texts))))
        return text

    def _read(self, messages: Sequence[Message], spend: Spend) -> None:
        new = messages[len(self._messages) :]
        spend(sum(one.chars for one in new))
        for message in new:
            mentions = read_mentions(message)
            self._messages.append(message)
            self._mentions.append(mentions)
            self.size_bytes += mentions.size_bytes

    def _write(self, place: Carried, count: CountTokens) -> str:
        cut, room = place.cut, place.cut.anchor_tokens
        removed, tail = self._messages[: cut.at], self._messages[cut.at : cut.made_at]
        leading = count_leading(removed)
        texts: list[str] = []
        tasks = find_task_list(removed[leading:], tail)
        if tasks is not None:
            texts.append(write_task_list(tasks, max_tokens=int(room * LIST_SHARE), count=count))
            room -= count(texts[-1])
        files = find_instruction_files(removed[leading:], tail, place.instruction_files)
        if files:
            texts.append(write_instruction_files(files, max_tokens=int(room * FILES_SHARE), count=count))
            room -= count(texts[-1])
        # A task statement that came after the cut was made is ignored: it must not change what was carried before.
        task = () if place.task is None or place.task >= cut.made_at else (place.task,)
        # Of the leading messages only the system messages are not read for names.
        stays = [index for index in range(leading) if removed[index].role is not Role.SYSTEM]
        steps = (index for step in cut.kept_steps for index in range(*step))
        kept = [*cut.kept, *((cut.opening,) if cut.opening >= 0 else ()), *steps]
        verbatim = [*stays, *kept, *task, *range(cut.at, cut.made_at)]
        present = {name for index in verbatim for name in self._mentions[index].asked | self._mentions[index].told}
        # Names in the digest or in verbatim messages are not repeated in the index.
        present |= find_names(place.told)
        spoken = {*stays, *kept, *task}
        unsaid = [message for index, message in enumerate(removed) if index not in spoken]
        names = Removed(unsaid, self._mentions[: cut.at], present, bool(place.told), tail)
        texts.append(write_anchors(names, max_tokens=room, count=count))
        return "\n\n".join(text.rstrip("\n") for text in reversed(texts) if text)
