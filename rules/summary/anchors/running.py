"""What was still running: processes in the background, and sub-agents, with the ids by which they are called.

Law: linear, told from calls and the beginnings of their results. A process that was ended is not told.
"""

import re
from collections.abc import Sequence

from rules.conversation import Message, Role, ToolCall
from rules.results.calls import OpenCalls
from rules.summary.digest.steps import NAME_CHARS, find_command
from rules.summary.quoting import quote_line

MAX_RUNNING = 16
"""The newest ones."""
TITLE_CHARS = 80
RESULT_CHARS = 2000
"""Of a result, in which ids are looked for."""
MAX_HANDLES = 3
"""Ids of one process or sub-agent."""

_BACKGROUND_MEMBER = re.compile(r'"(?:run_in_background|is_?background|background|detach)"\s{0,4}:\s{0,4}true')
_BACKGROUND = re.compile(r"(?<![&>])&(?![&>\d])\s{0,8}(?:\Z|[\n;)]|echo\b|disown\b)|\bnohup\b|\bsetsid\b")
_ENDING = re.compile(r"\b(?:kill|pkill|killall|stop|terminate|close)", re.IGNORECASE)
_WORD = re.compile(r"[\w-]{3,64}")
_HANDLE = re.compile(
    r"""\b(?P<label>pid|(?:process|session|shell|task|job|agent|bash|run|thread)[ _-]?id)
    (?:["']?[ ]{0,2}(?:[:=]|is)?[ ]{0,2}["']?|[ ](?:is[ ])?)(?P<value>[A-Za-z0-9][\w-]{1,63})""",
    re.IGNORECASE | re.VERBOSE,
)
_JOB = re.compile(r"^\[\d{1,3}\] (\d{2,10})$", re.MULTILINE)
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_AGENTS = frozenset({"task", "agent", "subagent", "delegate", "spawn"})
_NO_AGENTS = frozenset({"create", "get", "list", "update", "tracker", "output", "stop", "progress"})
"""Beside the word `task` these speak of a list of tasks, or of one that was begun before."""


def find_running(messages: Sequence[Message]) -> tuple[str, ...]:
    """What was begun in these messages and not ended, oldest first, each a line."""
    running: dict[str, None] = {}
    calls = OpenCalls()
    for message in messages:
        call = calls.answer(message)
        if call is None or message.role is not Role.TOOL:
            continue
        if _ENDING.search(call.name[:NAME_CHARS]) or _ENDING.search(call.arguments[:RESULT_CHARS]):
            for title in [title for title in running if _speaks_of(call, title)]:
                del running[title]
        elif _runs_on(call):
            running[_describe(call, message.text)] = None
    return tuple(running)[-MAX_RUNNING:]


def _runs_on(call: ToolCall) -> bool:
    parts = {part.lower() for part in _NAME_PARTS.findall(call.name[:NAME_CHARS])}
    if not parts.isdisjoint(_AGENTS) and parts.isdisjoint(_NO_AGENTS):
        return True
    if _BACKGROUND_MEMBER.search(call.arguments[-RESULT_CHARS:]):
        return True
    command = find_command(call)
    return command is not None and _BACKGROUND.search(command) is not None


def _describe(call: ToolCall, result: str) -> str:
    said = result[:RESULT_CHARS]
    handles = [f"{found['label'].lower()} {found['value']}" for found in _HANDLE.finditer(said)]
    handles += [f"pid {pid}" for pid in _JOB.findall(said)]
    told = ", ".join(list(dict.fromkeys(handles))[:MAX_HANDLES])
    title = find_command(call) or f"{call.name} {call.arguments}"
    return quote_line(title, TITLE_CHARS) + (f" ({quote_line(told, TITLE_CHARS * 2)})" if told else "")


def _speaks_of(call: ToolCall, title: str) -> bool:
    """Whether the call names something that the title names, too."""
    words = {word for word in _WORD.findall(call.arguments[:RESULT_CHARS]) if not _ENDING.match(word)}
    return not words.isdisjoint(_WORD.findall(title))
