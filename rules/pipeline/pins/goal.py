"""The user's goal: the words of a user message, as one line.

Law: text that the client or a tool put into a user message is no goal. Linear in the text.
"""

import re
from collections.abc import Sequence

from rules.conversation import Message, Role
from rules.summary.quoting import quote_line
from rules.text.client_summaries import is_client_summary
from rules.text.memory_blocks import find_memory

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


def find_goal(message: Message, memory_tags: Sequence[str]) -> str:
    """What a user message says, as one line of at most GOAL_CHARS characters; empty if it has no words.

    Retrieved memory, a client's additions, tool output and a client's summary of an earlier session are left out.
    """
    if message.role is not Role.USER:
        return ""
    tags = (*memory_tags, *CLIENT_TAGS)
    said = (_leave_out(text, tags) for text in message.texts if not is_client_summary(text))
    words = (text for text in said if not _TOOL_OUTPUT.match(text))
    text = "\n".join(text for text in words if not _COMMAND.match(text)).strip()
    line = quote_line(text, GOAL_CHARS)
    return line if any(map(str.isalnum, line)) else ""


def _leave_out(text: str, tags: Sequence[str]) -> str:
    """The text without the blocks of these tags."""
    pieces: list[str] = []
    stop = 0
    for start, end in find_memory(text, tags):
        pieces.append(text[stop:start])
        stop = end
    return "".join((*pieces, text[stop:])) if pieces else text
