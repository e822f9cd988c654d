"""Rung 7: what happened, told without a model.

Law: a function of the messages and the budget alone. It stands in where a summary is not to be had.
"""

import re
from collections.abc import Iterable, Sequence

from rules.conversation import CountTokens, Message, Role
from rules.text.head_tail import truncate_text

REQUEST_CHARS = 300
CALL_CHARS = 120
ERROR_CHARS = 200
ERRORS = 8
FILES = 40
RECENT_CALLS = 40

_PATH = re.compile(r"(?<![\w:/])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,64}+/){1,12}+[\w.@+-]{1,64}+(?<=\w)")
_ERROR = re.compile(
    r"^.{0,400}?(?:\b(?:error|exception|failed|failure|fatal|traceback|panic)\b|Error:|Exception:).{0,400}$",
    re.IGNORECASE | re.MULTILINE,
)


def write_digest(messages: Sequence[Message], *, max_tokens: int, count: CountTokens) -> str:
    """Requests, calls made, files touched, last errors and the last word, within `max_tokens`."""
    sections = (
        ("Requests, oldest first", _requests(messages)),
        ("Files named in tool calls", _files(messages)),
        ("Errors seen last", _errors(messages)),
        ("Tool calls, oldest first", _calls(messages)),
        ("Last message of the assistant", _last_word(messages)),
    )
    text = f"{len(messages)} earlier messages were removed; this is a list made from them.\n"
    text += "\n".join(f"## {title}\n{_lines(rows)}" for title, rows in sections if rows)
    return truncate_text(text, max_tokens, count)


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"- {row}\n" for row in rows)


def _clip(text: str, chars: int) -> str:
    """One line of at most `chars` characters."""
    line = " ".join(text[: chars * 4].split())
    return line if len(line) <= chars else line[:chars] + "…"


def _requests(messages: Sequence[Message]) -> list[str]:
    texts = [message.text for message in messages if message.role is Role.USER]
    return [_clip(text, REQUEST_CHARS) for text in texts if text.strip()]


def _calls(messages: Sequence[Message]) -> list[str]:
    calls = [call for message in messages for call in message.tool_calls]
    rows = [f"{call.name} {_clip(call.arguments, CALL_CHARS)}" for call in calls[-RECENT_CALLS:]]
    earlier = len(calls) - len(rows)
    return [f"({earlier} earlier calls)", *rows] if earlier else rows


def _files(messages: Sequence[Message]) -> list[str]:
    """Paths in the arguments of calls; the newest stay when there are too many, in order of first mention."""
    arguments = (call.arguments[:4000] for message in messages for call in message.tool_calls)
    return list(dict.fromkeys(path for text in arguments for path in _PATH.findall(text)))[-FILES:]


def _errors(messages: Sequence[Message]) -> list[str]:
    errors: list[str] = []
    for message in reversed(messages):
        if message.role is Role.TOOL:
            lines = _ERROR.findall(message.text[-8000:])
            errors.extend(_clip(line, ERROR_CHARS) for line in reversed(lines[-2:]))
        if len(errors) >= ERRORS:
            break
    return list(dict.fromkeys(reversed(errors[:ERRORS])))


def _last_word(messages: Sequence[Message]) -> list[str]:
    said = [message.text for message in messages if message.role is Role.ASSISTANT and message.text.strip()]
    return [_clip(text, REQUEST_CHARS * 2) for text in said[-1:]]
