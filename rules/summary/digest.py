"""Write the digest: lists of what happened, each with a share of the budget.

Law: a function of only the messages and the budget. The digest shows who said what: tool output, calls and the
assistant's words are in one quotation, the user's words are outside it.

What was done depends on the calls, and on how their results begin and end. What is uncertain is left out. Linear in the
calls; only the beginning of arguments is read. An error is resolved if the same call succeeded later or reported other
errors, or if a file that it names was changed later and the error did not come again. Text that a tool only read
from a file is not an error. Only the end of each result is read for errors.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from trimtab.rules.conversation import CountTokens, Message, Role, ToolCall
from trimtab.rules.results.calls import OpenCalls, tells_failure, was_refused
from trimtab.rules.summary.calls import Deed, find_command, find_deeds, only_reads, split_command
from trimtab.rules.summary.quoting import Rows, quote_line, write_lists
from trimtab.rules.summary.statements import CHARS_PER_TOKEN, SENTENCE_CHARS, Said, find_statements, rank
from trimtab.rules.summary.task_list import leave_out_lists
from trimtab.rules.text.late import compile_late

CALL_CHARS = 120  # Maximum number of characters shown of a call. Chosen.
NAME_CHARS = 64  # Longest name of a tool that is shown. Source: OpenAI's bound for the names of functions.
FILES = 200  # Maximum number of files returned, the newest ones. Chosen.
RECENT_CALLS = 40  # Maximum number of different calls returned, the newest ones. Chosen.

_FAILED = {
    Deed.READ: "read failed",
    Deed.WRITTEN: "write failed",
    Deed.EDITED: "edit failed",
    Deed.DELETED: "delete failed",
}


class Steps(msgspec.Struct, frozen=True):
    """Files and calls as single lines, the newest last.

    `order` has the indexes of `files` in the order in which to take them: changed files first, then the others, each
    from the newest on. `left_out` is the number of earlier calls that are not in `calls`.
    """

    files: tuple[str, ...]
    order: tuple[int, ...]
    calls: tuple[str, ...]
    left_out: int


class _Called(msgspec.Struct):
    """A group of equal calls: their number, whether the last one failed, and whether any of them did."""

    row: str
    times: int = 0
    failed: bool = False
    ever_failed: bool = False

    def __str__(self) -> str:
        times = f" ({self.times}x)" if self.times > 1 else ""
        ended = " -> failed" if self.failed else " -> failed, then passed" if self.ever_failed else ""
        return self.row + times + ended


class _Found(msgspec.Struct):
    deeds: dict[str, Counter[str]] = msgspec.field(default_factory=dict)
    called: dict[tuple[str, str], _Called] = msgspec.field(default_factory=dict)
    calls: int = 0

    def touch(self, path: str, deed: Deed) -> None:
        """Count what was done to a file; the file becomes the newest one."""
        deeds = self.deeds.pop(path, None) or Counter()
        deeds[deed] += 1
        self.deeds[path] = deeds

    def undo(self, path: str, deed: Deed) -> None:
        """Count a deed as failed instead of done."""
        deeds = self.deeds[path]
        if deed in _FAILED and deeds[deed]:
            deeds[deed] -= 1
            deeds[_FAILED[deed]] += 1

    def call(self, call: ToolCall) -> None:
        """Count a call; it becomes the newest one."""
        key, command = (call.name, call.arguments), find_command(call)
        told = call.arguments if command is None else command
        row = f"{quote_line(call.name, NAME_CHARS)} {quote_line(told, CALL_CHARS)}"
        one = self.called.pop(key, None) or _Called(row)
        one.times += 1
        self.called[key] = one
        self.calls += 1


def find_steps(messages: Sequence[Message]) -> Steps:
    found, open_calls = _Found(), OpenCalls()
    for message in messages:
        answered = open_calls.answer(message)
        if answered is not None and message.role is Role.TOOL:
            _note_end(found, answered, message)
        for call in message.tool_calls:
            deeds = find_deeds(call)
            for path, deed in deeds.items():
                found.touch(path, deed)
            if not deeds or find_command(call) is not None or set(deeds.values()) == {Deed.NAMED}:
                found.call(call)
    files = list(found.deeds.items())[-FILES:]
    changed = [any(deeds[deed] for deed in (Deed.WRITTEN, Deed.EDITED, Deed.DELETED)) for _, deeds in files]
    order = sorted(range(len(files)), key=lambda index: (changed[index], index), reverse=True)
    newest = list(found.called.values())[-RECENT_CALLS:]
    left_out = found.calls - sum(one.times for one in newest)
    return Steps(tuple(_write_file(*one) for one in files), tuple(order), tuple(map(str, newest)), left_out)


def _note_end(found: _Found, call: ToolCall, result: Message) -> None:
    failed = tells_failure(result)
    for path, deed in find_deeds(call).items() if failed and _is_undone(call, result) else ():
        found.undo(path, deed)
    one = found.called.get((call.name, call.arguments))
    if one is not None:
        one.failed = failed
        one.ever_failed |= failed


def _is_undone(call: ToolCall, result: Message) -> bool:
    """Whether a failed call did nothing at all. If a line has several commands, the first may have succeeded."""
    commands = [one for one in split_command(find_command(call) or "") if one.split(None, 1)[:1] not in ([], ["cd"])]
    return len(commands) < 2 or was_refused(result)


def _write_file(path: str, deeds: Counter[str]) -> str:
    told = [
        f"{deed} {times}x" if times > 1 else str(deed) for deed, times in deeds.items() if times and deed != Deed.NAMED
    ]
    return quote_line(path, 256) + (f" ({', '.join(told)})" if told else "")


ERROR_CHARS = 200  # Maximum number of characters of one error's line. Chosen.
ERRORS = 8  # Maximum number of errors returned, the newest ones. Chosen.
LINES = 2  # Maximum number of error lines of one result, the last ones. Chosen.
RESULT_CHARS = 8000  # Of a result's end that are searched. Chosen: a failing program prints its error last.
RESULTS = 400  # Only this many of the newest results are searched. Chosen: bounds the work.
BEFORE_CHARS = 100
"""Maximum number of characters of a line that are kept before the word that shows the error. Chosen: half of
ERROR_CHARS, so that what follows the word has room, too."""
OPEN = 64
"""Maximum number of open errors followed at the same time; the oldest is dropped. Chosen: it bounds the time per
call."""

_WORD = compile_late(r"\b(?:error|exception|failed|failure|fatal|panic)\b|Error\b|Exception\b", re.IGNORECASE)
_NONE = compile_late(r"(?:\b(?:0|no|without|zero)\s(?:\w{1,20}\s)?\w{0,20}$)", re.IGNORECASE)
_SIGNS = " \t\r:.!-=*"  # If a line has only these characters besides the word, it is a title and not an error
_CHANGES = frozenset({Deed.WRITTEN, Deed.EDITED, Deed.DELETED})
_SOURCE = compile_late(
    r"[ \t]{0,12}\d{1,7}[ \t:|\u2192-]{1,80}"
    r"(?:#|//|/\*|\*|--|<!--|\"\"\"|@|(?:raise|def|class|throw|except|catch|return|import|from)\b)"
)
"""A numbered line of source code (a comment or a statement): it mentions an error and reports none."""


class _Error(msgspec.Struct):
    call: tuple[str, str] | None
    mended_by: ToolCall | None = None


def find_open_errors(messages: Sequence[Message]) -> tuple[str, ...]:
    """Find the newest errors that are unresolved after the last message: one line each, oldest first."""
    errors: dict[str, _Error] = {}
    calls = OpenCalls()
    results = sum(message.role is Role.TOOL for message in messages)
    for message in messages:
        call = calls.answer(message)
        if message.role is Role.TOOL:
            results -= 1
            if results < RESULTS:
                _note_result(errors, call, message)
        for made in message.tool_calls if errors else ():
            _note_change(errors, made)
    return tuple(line for line, error in errors.items() if error.mended_by is None)[-ERRORS:]


def _note_result(errors: dict[str, _Error], call: ToolCall | None, result: Message) -> None:
    text = result.text
    failed = tells_failure(result)
    key = (call.name, call.arguments) if call is not None else None
    lines = [] if not failed and call is not None and _is_of_files(call) else list(_find_lines(text))
    # A change that itself failed has resolved nothing.
    for error in errors.values() if failed and call is not None else ():
        error.mended_by = None if error.mended_by is call else error.mended_by
    if key is not None and (lines or not failed):  # what the same call reported before is out of date
        for line in [line for line, error in errors.items() if error.call == key]:
            del errors[line]
    for line in lines:
        errors.pop(line, None)
        errors[line] = _Error(key)
    while len(errors) > OPEN:
        del errors[next(iter(errors))]


def _is_of_files(call: ToolCall) -> bool:
    """Whether a call only shows files, or edits them and shows their content: errors in that text are not its own."""
    if only_reads(call):
        return True
    return find_command(call) is None and not {Deed.READ, *_CHANGES}.isdisjoint(find_deeds(call).values())


def _note_change(errors: dict[str, _Error], call: ToolCall) -> None:
    changed = [path for path, deed in find_deeds(call).items() if deed in _CHANGES]
    for path in changed:
        name = path.rpartition("/")[2]
        for line, error in errors.items():
            if error.mended_by is None and name in line:
                error.mended_by = call


def _find_lines(text: str) -> Iterator[str]:
    """The last lines of a text that report an error, in the text's order."""
    end = text[-RESULT_CHARS:]
    found: dict[int, int] = {}
    for word in _WORD.finditer(end):
        line = end.rfind("\n", 0, word.start()) + 1
        stop = end.find("\n", word.end())
        is_alone = not end[word.end() : stop if stop >= 0 else None].strip(_SIGNS)
        is_alone = is_alone and not end[line : word.start()].strip(_SIGNS)
        if (
            line not in found
            and not is_alone
            and not _SOURCE.match(end, line)
            and not _NONE.search(end[max(line, word.start() - 40) : word.start()] + word[0])
        ):
            found[line] = word.start()
    for line, at in list(found.items())[-LINES:]:
        start = max(line, at - BEFORE_CHARS)
        stop = end.find("\n", at)
        yield quote_line(end[start : stop if stop >= 0 else None], ERROR_CHARS)


USERS_SHARE, ASSISTANTS_SHARE = 0.40, 0.30
FILES_SHARE, CALLS_SHARE, ERRORS_SHARE = 0.12, 0.08, 0.10
REMINDERS_SHARE = 0.10  # Each list's share of the budget. That of an empty list is divided. Chosen.

REMINDERS = 40  # Maximum number of different reminders listed, the newest ones. Chosen: bounds the work.
REMINDER_CHARS = 160  # Maximum number of characters of a reminder. Chosen: a small digest has room for one.

_NO_LIST = " earlier messages were removed.\n"  # The opening of a digest that has no room for a list
_OPENING = " earlier messages were removed; this is a list made from them.\n"
_BEGINNING = compile_late(rf"(?:\A|\n\n)\d+(?:{re.escape(_OPENING)}|{re.escape(_NO_LIST)})")


def write_digest(messages: Sequence[Message], *, max_tokens: int, count: CountTokens, note: str = "") -> str:
    """Write what was said and done and which errors remain, within `max_tokens`.

    The digest begins with `note` if there is one: a model's summary that covers what came before these messages.
    """
    beginning = f"{note}\n\n{len(messages)}" if note else f"{len(messages)}"
    opening = beginning + _OPENING
    # The shares of empty lists are divided among the others in proportion.
    full = [one for one in _find_lists(messages, max(max_tokens - count(opening), 0), count) if one.rows]
    whole = sum(one.share for one in full)
    lists = [replace(one, share=one.share / whole) for one in full]
    text = write_lists(opening, lists, max_tokens=max_tokens, count=count)
    return beginning + _NO_LIST if text == opening else text


def find_note(digest: str) -> str:
    """Return the model's summary with which a digest begins; empty if it has none."""
    beginning = _BEGINNING.search(digest)
    return digest[: beginning.start()] if beginning else ""


def drop_opening(digest: str) -> str:
    """The digest without the line that says what it is; as it is if it begins with a model's summary."""
    opening = _BEGINNING.match(digest)
    return digest[opening.end() :] if opening else digest


def _find_lists(messages: Sequence[Message], room_tokens: int, count: CountTokens) -> list[Rows]:
    by_user, by_assistant = find_statements(messages)
    users_tokens, assistants_tokens = int(room_tokens * USERS_SHARE), int(room_tokens * ASSISTANTS_SHARE)
    users = Rows("User requests, oldest first", (), USERS_SHARE, is_users=True)
    assistants = Rows("Said by the assistant", (), ASSISTANTS_SHARE)
    steps = find_steps([leave_out_lists(message) for message in messages])
    return [
        _tell(users, messages, by_user, max_tokens=users_tokens, count=count),
        _remind(messages),
        _tell(assistants, messages, by_assistant, max_tokens=assistants_tokens, count=count),
        Rows("Files and what was done to them", steps.files, FILES_SHARE, order=steps.order, joint="; "),
        Rows("Tool calls, oldest first", steps.calls, CALLS_SHARE, "calls", steps.left_out),
        Rows("Unresolved errors", find_open_errors(messages), ERRORS_SHARE),
    ]


def _remind(messages: Sequence[Message]) -> Rows:
    """The newest system messages as single lines, each once. The client said them, so they are not quoted."""
    lines: dict[str, None] = {}
    for message in reversed(messages):
        if message.role is Role.SYSTEM and message.text.strip():
            lines[quote_line(message.text, REMINDER_CHARS)] = None
            if len(lines) == REMINDERS:
                break
    order = tuple(range(len(lines)))[::-1]
    title = "Reminders from the client's program, oldest first"
    return Rows(title, tuple(reversed(lines)), REMINDERS_SHARE, is_users=True, order=order)


def _tell(rows: Rows, messages: Sequence[Message], said: Said, *, max_tokens: int, count: CountTokens) -> Rows:
    """The list of what one side said: whole messages if all fit, else the sentences with the most information."""
    texts = [message.text for message in messages if message.role is said.role and message.text.strip()]
    if sum(map(len, texts)) <= max_tokens * CHARS_PER_TOKEN and all(len(text) <= SENTENCE_CHARS for text in texts):
        lines = tuple(quote_line(text, SENTENCE_CHARS) for text in texts)
        if sum(map(count, lines)) <= max_tokens:
            return replace(rows, rows=lines)
    ranked = rank(said, max_tokens=max_tokens * 2, number=len(messages))
    return replace(rows, rows=ranked.lines, order=ranked.order, joint=" ")
