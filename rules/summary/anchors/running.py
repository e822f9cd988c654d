"""What was still running: processes in the background, and sub-agents, with the ids by which they are called.

Law: linear, told from calls and the beginnings of their results. A process that was ended is not told.
"""

import re
from collections.abc import Sequence

from rules.conversation import Message, Role, ToolCall
from rules.results.calls import OpenCalls
from rules.summary.digest.steps import ARGUMENTS_CHARS, NAME_CHARS, find_command
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
_MAY_BEGIN = re.compile(r"&|nohup|setsid")
_ENDING_NAME = re.compile(r"kill|stop|terminate|close|cancel", re.IGNORECASE)
_ENDING = re.compile(
    r"\b(?:kill|pkill|killall|taskkill)\b"
    r"|\b(?:docker|podman|compose|systemctl|service|pm2|supervisorctl)\b[^\n]{0,80}?\b(?:stop|down|rm|delete)\b"
)
_LINES = re.compile(r"&&|\|\||[;\n]")
"""Between the lines of a shell; a pipe is one."""
_KEY = re.compile(r'"[\w-]{1,64}"\s{0,4}:')
_WORD = re.compile(r"[\w-]{3,64}")
_HANDLE = re.compile(
    r"""\b(?P<label>pid|(?:process|session|shell|task|job|agent|bash|run|thread)[ _-]?id)
    (?:["']?[ ]{0,2}(?:[:=]|is)?[ ]{0,2}["']?|[ ](?:is[ ])?)(?P<value>[A-Za-z0-9][\w-]{1,63})""",
    re.IGNORECASE | re.VERBOSE,
)
_HANDLE_LABEL = re.compile(r"\b(?:pid|(?:process|session|shell|task|job|agent|bash|run|thread)[ _-]?id)\b")
_JOB = re.compile(r"^\[\d{1,3}\] (\d{2,10})$", re.MULTILINE)
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_AGENTS = frozenset({"task", "agent", "subagent", "delegate", "spawn"})
_NO_AGENTS = frozenset({"create", "get", "list", "update", "tracker", "output", "stop", "progress"})
"""Beside the word `task` these speak of a list of tasks, or of one that was begun before."""


def find_running(messages: Sequence[Message], tail: Sequence[Message] = ()) -> tuple[str, ...]:
    """What was begun in these messages and ended neither there nor in the tail, oldest first, each a line."""
    running: dict[str, frozenset[str]] = {}
    calls = OpenCalls()
    for index, message in enumerate((*messages, *tail)):
        call = calls.answer(message)
        if call is None or message.role is not Role.TOOL:
            continue
        ended = _find_ended(call)
        for title in [title for title, words in running.items() if not words.isdisjoint(ended)]:
            del running[title]
        if not ended and index < len(messages) and _runs_on(call):
            title = _describe(call, message.text)
            running.pop(title, None)
            running[title] = frozenset(_WORD.findall(_HANDLE_LABEL.sub(" ", title)))
    return tuple(running)[-MAX_RUNNING:]


def _find_ended(call: ToolCall) -> set[str]:
    """The words that name what a call ends; none if it ends nothing."""
    if _ENDING_NAME.search(call.name[:NAME_CHARS]):
        return set(_WORD.findall(_KEY.sub(" ", call.arguments[:RESULT_CHARS])))
    command = find_command(call) if _ENDING.search(call.arguments[:ARGUMENTS_CHARS]) else None
    lines = [line for line in _LINES.split(command or "") if _ENDING.search(line)]
    return {word for line in lines for word in _WORD.findall(_ENDING.sub(" ", line))}


def _runs_on(call: ToolCall) -> bool:
    parts = {part.lower() for part in _NAME_PARTS.findall(call.name[:NAME_CHARS])}
    if not parts.isdisjoint(_AGENTS) and parts.isdisjoint(_NO_AGENTS):
        return True
    if _BACKGROUND_MEMBER.search(call.arguments[-RESULT_CHARS:]):
        return True
    command = find_command(call) if _MAY_BEGIN.search(call.arguments[:ARGUMENTS_CHARS]) else None
    return command is not None and _BACKGROUND.search(command) is not None


def _describe(call: ToolCall, result: str) -> str:
    said = result[:RESULT_CHARS]
    handles = [f"{found['label'].lower()} {found['value']}" for found in _HANDLE.finditer(said)]
    handles += [f"pid {pid}" for pid in _JOB.findall(said)]
    told = ", ".join(list(dict.fromkeys(handles))[:MAX_HANDLES])
    title = find_command(call) or f"{call.name} {call.arguments}"
    return quote_line(title, TITLE_CHARS) + (f" ({quote_line(told, TITLE_CHARS * 2)})" if told else "")
