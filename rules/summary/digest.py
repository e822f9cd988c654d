"""Rung 7: what happened, told without a model.

Law: a function of the messages and the budget alone. It stands in where a summary is not to be had. It tells who said
what: lines of tools, calls and the assistant's words stand in one quotation.
"""

import re
from collections.abc import Sequence

from rules.conversation import CountTokens, Message, Role
from rules.summary.lists import Rows, write_lists
from rules.summary.quoting import quote_line

REQUEST_CHARS = 300
CALL_CHARS = 120
NAME_CHARS = 64
"""Source: OpenAI's bound for the names of functions."""
ERROR_CHARS = 200
ERRORS = 8
FILES = 40
RECENT_CALLS = 40

_NO_LIST = " earlier messages were removed.\n"
"""If there is no room for a list."""
_OPENING = " earlier messages were removed; this is a list made from them.\n"
_BEGINNING = re.compile(rf"(?:\A|\n\n)\d+(?:{re.escape(_OPENING)}|{re.escape(_NO_LIST)})")
_PATH = re.compile(r"(?<![\w:/])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,64}+/){1,12}+[\w.@+-]{1,64}+(?<=\w)")
_ERROR = re.compile(
    r"^.{0,400}?(?:\b(?:error|exception|failed|failure|fatal|traceback|panic)\b|Error:|Exception:).{0,400}$",
    re.IGNORECASE | re.MULTILINE,
)


def write_digest(messages: Sequence[Message], *, max_tokens: int, count: CountTokens, note: str = "") -> str:
    """Requests, calls made, files touched, last errors and the last word, within `max_tokens`, behind a `note`."""
    beginning = f"{note}\n\n{len(messages)}" if note else f"{len(messages)}"
    opening = beginning + _OPENING
    lists = (
        Rows("Requests, oldest first", _requests(messages), 0.45, "requests", is_users=True),
        _calls(messages),
        Rows("Files named in tool calls", _files(messages), 0.15),
        Rows("Errors seen last in tool results", _errors(messages), 0.15),
        Rows("Last message of the assistant", _last_word(messages), 0.15),
    )
    text = write_lists(opening, lists, max_tokens=max_tokens, count=count)
    return beginning + _NO_LIST if text == opening else text


def find_note(digest: str) -> str:
    """The model's summary that a digest goes on from; empty if it goes on from none."""
    beginning = _BEGINNING.search(digest)
    return digest[: beginning.start()] if beginning else ""


def _requests(messages: Sequence[Message]) -> tuple[str, ...]:
    texts = (message.text for message in messages if message.role is Role.USER)
    return tuple(quote_line(text, REQUEST_CHARS) for text in texts if text.strip())


def _calls(messages: Sequence[Message]) -> Rows:
    calls = [call for message in messages for call in message.tool_calls]
    newest = calls[-RECENT_CALLS:]
    rows = tuple(f"{quote_line(call.name, NAME_CHARS)} {quote_line(call.arguments, CALL_CHARS)}" for call in newest)
    return Rows("Tool calls, oldest first", rows, 0.1, "calls", len(calls) - len(rows))


def _files(messages: Sequence[Message]) -> tuple[str, ...]:
    """Paths in the arguments of calls; the newest stay when there are too many, in order of first mention."""
    arguments = (call.arguments[:4000] for message in messages for call in message.tool_calls)
    return tuple(dict.fromkeys(path for text in arguments for path in _PATH.findall(text)))[-FILES:]


def _errors(messages: Sequence[Message]) -> tuple[str, ...]:
    errors: list[str] = []
    for message in reversed(messages):
        if message.role is Role.TOOL:
            lines = _ERROR.findall(message.text[-8000:])
            errors.extend(quote_line(line, ERROR_CHARS) for line in reversed(lines[-2:]))
        if len(errors) >= ERRORS:
            break
    return tuple(dict.fromkeys(reversed(errors[:ERRORS])))


def _last_word(messages: Sequence[Message]) -> tuple[str, ...]:
    said = [message.text for message in messages if message.role is Role.ASSISTANT and message.text.strip()]
    return tuple(quote_line(text, REQUEST_CHARS * 2) for text in said[-1:])
