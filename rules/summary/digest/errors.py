"""Find errors in tool results that nothing has resolved since.

Law: an error is resolved if the same call succeeded later, or if a file that it names was changed later and the error
did not come again. Text that a tool only read from a file is not an error. Only the end of each result is read.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rules.conversation import Message, Role, ToolCall
from rules.results.calls import OpenCalls, tells_failure
from rules.summary.digest.steps import Deed, find_deeds, is_command, only_reads
from rules.summary.quoting import quote_line

ERROR_CHARS = 200
"""Maximum number of characters of one error's line. Chosen."""
ERRORS = 8
"""Maximum number of errors returned, the newest ones. Chosen."""
LINES = 2
"""Maximum number of error lines of one result, the last ones. Chosen."""
RESULT_CHARS = 8000
"""Characters from a result's end that are searched. Chosen: a failing program prints its error last."""
RESULTS = 400
"""Only this many of the newest results are searched. Chosen: bounds the work."""
BEFORE_CHARS = 100
"""Maximum number of characters of a line that are kept before the word that shows the error. Chosen: half of
ERROR_CHARS, so that what follows the word has room, too."""
OPEN = 64
"""Maximum number of open errors followed at the same time; the oldest is dropped. Chosen: it bounds the time per
call."""

_WORD = re.compile(r"\b(?:error|exception|failed|failure|fatal|panic)\b|Error\b|Exception\b", re.IGNORECASE)
_NONE = re.compile(r"(?:\b(?:0|no|without|zero)\s(?:\w{1,20}\s)?\w{0,20}$)", re.IGNORECASE)
_SIGNS = " \t\r:.!-=*"
"""If a line has only these characters besides the word, it is a title and not an error."""
_CHANGES = frozenset({Deed.WRITTEN, Deed.EDITED, Deed.DELETED})
_SOURCE = re.compile(
    r"[ \t]{0,12}\d{1,7}[ \t:|\u2192-]{1,80}"
    r"(?:#|//|/\*|\*|--|<!--|\"\"\"|@|(?:raise|def|class|throw|except|catch|return|import|from)\b)"
)
"""A numbered line of source code (a comment or a statement): it mentions an error and reports none."""


@dataclass(slots=True)
class _Error:
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
    if key is not None and not failed and not lines:
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
    return not is_command(call) and not {Deed.READ, *_CHANGES}.isdisjoint(find_deeds(call).values())


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
