"""Find what is still running: background processes and sub-agents, with the ids by which an agent reaches them.

Law: linear; a function of calls and the beginnings of their results. A process that was ended is not listed. Parts of a
command line that the shell does not execute (quoted texts, comments and here-documents) are blanked. The blanked line
is as long as the original, so an index means the same place in both.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from trimtab.rules.conversation import Message, Role, ToolCall
from trimtab.rules.results.calls import OpenCalls, tells_failure, was_refused
from trimtab.rules.summary.calls import ARGUMENTS_CHARS, NAME_CHARS, find_command, only_reads, split_name
from trimtab.rules.summary.quoting import quote_line
from trimtab.rules.text.late import compile_late

_HEREDOC = compile_late(
    r"(?<!<)<<-?[ \t]{0,4}(?P<quote>['\"]?)\\?(?P<end>\w{1,40})(?P=quote)(?P<rest>[^\n]*)\n"
    r"(?P<body>.*?(?:^[ \t]{0,40}(?P=end)[ \t]{0,8}$|\Z))",
    re.DOTALL | re.MULTILINE,
)
_INNER = compile_late(r"\b(?:ba|z|da|k)?sh[ ]{1,4}-[a-z]{0,4}c[ ]{1,4}(?P<quote>['\"])(?P<line>[^'\"]*)(?P=quote)")
"""A quoted command line that another shell executes, as in `sh -c '...'`."""
_TEXT = compile_late(r"\\.|'[^']*(?:'|\Z)|\"(?:\\.|[^\"\\])*(?:\"|\Z)|(?:^|(?<=\s))#[^\n]*", re.DOTALL | re.MULTILINE)


def blank_texts(command: str) -> str:
    """Return the command line with all text that is not executed blanked."""
    command = _HEREDOC.sub(lambda found: _begin(found, "body") + " " * len(found["body"]), command)
    # Line breaks in place of its quotes, so that an inner command line is read as a line of its own.
    command = _INNER.sub(lambda found: f"{_begin(found, 'line')[:-1]}\n{found['line']}\n", command)
    return _TEXT.sub(lambda found: "_" * len(found[0]), command)


def _begin(found: re.Match[str], part: str) -> str:
    return found[0][: found.start(part) - found.start()]


MAX_RUNNING = 16  # Maximum number of entries, the newest ones. Chosen: bounds the text and the work.
TITLE_CHARS = 80  # Maximum number of characters of an entry's command; its ids may have twice as many. Chosen.
RESULT_CHARS = 2000  # Of a result's start (or an argument's) that are searched for ids. Chosen: bounds the work.
HEAD_CHARS = 300
"""Characters from a result's start in which it may say that something still runs or has ended. Chosen: further on,
such words may be a program's output."""
MAX_HANDLES = 3  # Maximum number of ids of one process or sub-agent. Chosen.

_BACKGROUND_MEMBER = compile_late(r'"(?:run_in_background|is_?background|background|detach)"\s{0,4}:\s{0,4}true')
_COMMAND = (
    r"(?:^|[|;&(\n{]|\b(?:sudo|env|xargs|then|do|else|exec|time|sh|bash)\b)[ \t]{0,8}"
    r"(?:-\S{1,20}[ \t]{1,4}){0,4}(?:\w{1,40}=\S{0,80}[ \t]{1,4}){0,4}(?:/[\w/]{1,40}/)?"
)
"""The text that may precede the name of a command in a command line: an operator, a wrapper such as `sudo`, its
options, variables and a folder."""
_BACKGROUND = compile_late(
    r"(?<![&><|])&(?![&>\d])\s{0,8}(?:\Z|[\n;)]|echo\b|disown\b)"
    rf"|{_COMMAND}(?:nohup|setsid)\b"
    rf"|{_COMMAND}(?:docker|podman)(?:[ -]compose)?\b[^\n;|]{{0,80}}?\b(?:up|run|start)\b"
    r"[^\n;|]{0,80}?\s(?:-[a-z]{0,3}d[a-z]{0,3}|--detach)\b",
)
_MAY_BEGIN = compile_late(r"&|nohup|setsid|docker|podman")
_ENDING_NAME = compile_late(r"kill|stop|terminate|close|cancel", re.IGNORECASE)
_MAY_END = compile_late(r"kill|stop|down|rm|delete")
_ENDING = compile_late(
    rf"{_COMMAND}(?P<of>(?:kill|pkill|killall|taskkill)\b"
    r"|(?:docker|podman|docker-compose|podman-compose|systemctl|service|pm2|supervisorctl)\b"
    r"[^\n]{0,80}?\b(?:stop|down|kill|rm|delete)\b)"
)
_LINES = compile_late(r"&&|\|\||[;\n]")  # Separators of commands. A pipeline counts as one command.
_NEWEST_JOB = compile_late(r"%(?:\d|%|\+)")
_COMPOSE = frozenset({"compose", "docker-compose", "podman-compose"})
_ENDED = compile_late(
    r"<status>\s{0,4}(?:completed|exited|killed|failed|stopped|done|finished)\b"
    r"|[\"']status[\"']\s{0,4}:\s{0,4}[\"'](?:completed|exited|killed|failed|stopped|done|finished)\b"
    r"|^\s{0,4}(?:process|command|shell|session|task|agent)\b[^\n]{0,40}\b"
    r"(?:exited|completed|finished|terminated|was killed)\b"
    r"|\bstatus:\s{0,4}(?:completed|exited|killed|failed|stopped|done|finished)\b",
    re.IGNORECASE | re.MULTILINE,
)
_RUNS_ON = compile_late(
    r"^\W{0,4}(?:(?:command|process|shell|task|server|agent|it)\s)?(?:is\s|was\s)?(?:now\s|still\s|moved\s|sent\s)?"
    r"(?:running|to)\s(?:in\s(?:the\s)?background|the\sbackground|with\s(?:session|process|shell)\sid)",
    re.IGNORECASE | re.MULTILINE,
)
_LAUNCHED = compile_late(
    r"\W{0,4}(?:[\w-]{1,40}\s){0,3}?(?:(?:sub-?)?agent|task|job|async\w{0,10})\b[^\n.]{0,60}"
    r"\b(?:launched|spawned|started|running|background)\b"
    r"|\W{0,4}(?:launched|spawned|started|running)\b[^\n.]{0,60}\b(?:background|(?:sub-?)?agent|task|async\w{0,10})\b",
    re.IGNORECASE,
)
_KEY = compile_late(r'"[\w-]{1,64}"\s{0,4}:')
_WORD = compile_late(r"[\w-]{1,64}")
_HANDLE = compile_late(
    r"""\b(?P<label>pid|(?:process|session|shell|task|job|agent|bash|run|thread)[ _-]?id|(?<=with[ ])id)
    (?:["']?[ ]{0,2}[:=][ ]{0,2}["']?(?P<value>[A-Za-z0-9][\w-]{0,63})
      |[ ](?:is[ ])?(?P<number>(?=[A-Za-z_-]{0,63}\d)[A-Za-z0-9][\w-]{0,63}))""",
    re.IGNORECASE | re.VERBOSE,
)
_JOB = compile_late(r"^\[\d{1,3}\] (\d{2,10})$", re.MULTILINE)
_CONTAINER = compile_late(r"^([0-9a-f]{12})[0-9a-f]{52}$", re.MULTILINE)
_AGENTS = frozenset({"task", "agent", "subagent", "delegate", "spawn"})
_NO_AGENTS = frozenset({
    "create", "get", "list", "update", "tracker", "output", "stop", "progress", "run", "complete", "add", "status",
    "finish", "done", "edit", "delete", "remove", "set", "mark", "read", "wait", "send", "input", "resume", "close",
    "result", "results", "check", "view", "show",
})  # fmt: skip
"""If a tool's name has one of these beside a word such as `task`, the tool manages a task list or a task that was
started before. It does not start a sub-agent."""


class _Running(msgspec.Struct, frozen=True):
    """The ids of a process or sub-agent, the words of its title, and whether a command line started it."""

    handles: frozenset[str]
    words: frozenset[str]
    is_job: bool


def find_running(messages: Sequence[Message], tail: Sequence[Message] = ()) -> tuple[str, ...]:
    """Find the processes and agents that these messages started and nothing has ended: one line each, oldest first."""
    running: dict[str, _Running] = {}
    calls = OpenCalls()
    for index, message in enumerate((*messages, *tail)):
        call = calls.answer(message)
        if call is None or message.role is not Role.TOOL or was_refused(message):
            continue
        is_known = _end(running, call, message)
        if not is_known and index < len(messages) and _runs_on(call, message):
            handles = _find_handles(message.text)
            title = quote_line(find_command(call) or f"{call.name} {call.arguments}", TITLE_CHARS)
            title += f" ({quote_line(', '.join(handles), TITLE_CHARS * 2)})" if handles else ""
            words = frozenset(word for word in _WORD.findall(title) if len(word) > 2)
            running.pop(title, None)
            values = frozenset(told.rpartition(" ")[2] for told in handles)
            running[title] = _Running(values, words, find_command(call) is not None)
    return tuple(running)[-MAX_RUNNING:]


def _end(running: dict[str, _Running], call: ToolCall, result: Message) -> bool:
    """Remove what a call ends, or its result says has ended. Whether it was about that, and so starts nothing."""
    ended = _find_ended(call)
    if "%" in ended:
        newest = next((title for title in reversed(running) if running[title].is_job), None)
        running.pop(newest or "", None)
    for title in [title for title, one in running.items() if not ended.isdisjoint(one.handles | one.words)]:
        del running[title]
    if ended:  # whether a command line starts something after that, as in a restart
        blanked = blank_texts(find_command(call) or "")
        ends = [found.end() for found in _ENDING.finditer(blanked)]
        return not ends or _BACKGROUND.search(blanked, ends[-1]) is None
    asked = set(_values(call)) if running and find_command(call) is None else set()
    named = [title for title, one in running.items() if not asked.isdisjoint(one.handles)]
    for title in named if named and _ENDED.search(result.text[:HEAD_CHARS]) else ():
        del running[title]
    return bool(named)


def _values(call: ToolCall) -> list[str]:
    return _WORD.findall(_KEY.sub(" ", call.arguments[:RESULT_CHARS]))


def _find_ended(call: ToolCall) -> set[str]:
    """The words (ids, names) by which a call names what it ends; none if it ends nothing."""
    if _ENDING_NAME.search(call.name[:NAME_CHARS]):
        return set(_values(call))
    command = find_command(call) if _MAY_END.search(call.arguments[:ARGUMENTS_CHARS]) else None
    return {word for line in _ending_lines(command or "") for word in line}


def _ending_lines(command: str) -> Iterator[set[str]]:
    """For each command that ends something, the words that name what it ends; `%` is the shell's newest job."""
    blanked = blank_texts(command)
    start = 0
    for stop in (*(found.start() for found in _LINES.finditer(blanked)), len(blanked)):
        ending = _ENDING.search(blanked, start, stop)
        if ending is not None:
            line = command[start : ending.start("of")] + " " + command[ending.end() : stop]
            words = {word for word in _WORD.findall(line) if not word.startswith("-")}
            words |= {word[:12] for word in words if len(word) == 64}  # Docker accepts a container's short id, too
            if "compose" in ending["of"] and not any(len(word) > 2 for word in words):
                words |= _COMPOSE
            yield words | {"%"} if _NEWEST_JOB.search(line) else words
        start = stop


def _runs_on(call: ToolCall, result: Message) -> bool:
    head = result.text[:HEAD_CHARS]
    if tells_failure(result) or _ENDED.search(head):
        return False
    parts = set(split_name(call.name))
    if not parts.isdisjoint(_AGENTS):
        return parts.isdisjoint(_NO_AGENTS) and bool(_HANDLE.search(head) or _LAUNCHED.match(head))
    if _BACKGROUND_MEMBER.search(call.arguments[-RESULT_CHARS:]):
        return True
    command = find_command(call)
    if command is None:
        return False
    if _RUNS_ON.search(head) and not only_reads(call):
        return True
    may_begin = _MAY_BEGIN.search(call.arguments[:ARGUMENTS_CHARS]) is not None
    return may_begin and _BACKGROUND.search(blank_texts(command)) is not None


def _find_handles(result: str) -> list[str]:
    said = result[:RESULT_CHARS]
    handles = [f"{found['label']} {found['value'] or found['number']}" for found in _HANDLE.finditer(said)]
    handles += [f"pid {pid}" for pid in _JOB.findall(said)]
    handles += [f"container {one}" for one in _CONTAINER.findall(said)]
    return list(dict.fromkeys(handles))[:MAX_HANDLES]
