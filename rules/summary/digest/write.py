"""Write the digest: lists of what happened, each with a share of the budget.

Law: a function of only the messages and the budget. The digest shows who said what: tool output, calls and the
assistant's words are in one quotation, the user's words are outside it.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from trimtab.rules.conversation import CountTokens, Message, Role
from trimtab.rules.summary.carried.list_calls import leave_out_lists
from trimtab.rules.summary.digest.statements import CHARS_PER_TOKEN, SENTENCE_CHARS, Said, find_statements, rank
from trimtab.rules.summary.digest.steps import find_open_errors, find_steps
from trimtab.rules.summary.quoting import Rows, quote_line, write_lists

USERS_SHARE, ASSISTANTS_SHARE = 0.40, 0.30
FILES_SHARE, CALLS_SHARE, ERRORS_SHARE = 0.12, 0.08, 0.10
REMINDERS_SHARE = 0.10
"""Each list's share of the budget. The share of an empty list is divided among the others. Chosen."""

REMINDERS = 40
"""Maximum number of different reminders listed, the newest ones. Chosen: bounds the work."""
REMINDER_CHARS = 160
"""Maximum number of characters of a reminder. Chosen: a small digest has room for one."""

_NO_LIST = " earlier messages were removed.\n"
"""The opening of a digest that has no room for a list."""
_OPENING = " earlier messages were removed; this is a list made from them.\n"
_BEGINNING = re.compile(rf"(?:\A|\n\n)\d+(?:{re.escape(_OPENING)}|{re.escape(_NO_LIST)})")


def write_digest(messages: Sequence[Message], *, max_tokens: int, count: CountTokens, note: str = "") -> str:
    """Write what was said and done and which errors remain, within `max_tokens`.

    The digest begins with `note` if there is one: a model's summary that covers what came before these messages.
    """
    beginning = f"{note}\n\n{len(messages)}" if note else f"{len(messages)}"
    opening = beginning + _OPENING
    lists = _share(_find_lists(messages, max(max_tokens - count(opening), 0), count))
    text = write_lists(opening, lists, max_tokens=max_tokens, count=count)
    return beginning + _NO_LIST if text == opening else text


def find_note(digest: str) -> str:
    """Return the model's summary with which a digest begins; empty if it has none."""
    beginning = _BEGINNING.search(digest)
    return digest[: beginning.start()] if beginning else ""


def _find_lists(messages: Sequence[Message], room_tokens: int, count: CountTokens) -> list[Rows]:
    by_user, by_assistant = find_statements(messages)
    users_tokens, assistants_tokens = int(room_tokens * USERS_SHARE), int(room_tokens * ASSISTANTS_SHARE)
    users = Rows("User requests, oldest first", (), USERS_SHARE, is_users=True)
    assistants = Rows("Said by the assistant, oldest first", (), ASSISTANTS_SHARE)
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


def _share(lists: Sequence[Rows]) -> list[Rows]:
    """The lists that have rows, with the shares of the others divided among them in proportion."""
    full = [one for one in lists if one.rows]
    whole = sum(one.share for one in full)
    return [replace(one, share=one.share / whole) for one in full]
