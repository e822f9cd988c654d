"""Writes the sessions and requests beside it: made up, in the shapes that recorded ones have, the same in every run.

So a clone with nothing beside it reaches what otherwise only recorded data reach. `conversations` has whole sessions:
an agent that mends a program, a help desk with JSON, a talk in German. `wire` has requests as clients send them, with
their headers, in each of the three APIs.

Usage: PYTHONPATH=tests .venv/bin/python tests/data/make.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
from support.dialects.spoken.all_dialects import DIALECTS

Wire = dict[str, Any]
FOLDER = Path(__file__).parent
MODULES = ("berths", "cranes", "manifest", "pilots", "quays", "tides", "tugs", "weather")
WORDS = ("anchor", "basin", "cargo", "draught", "ebb", "ferry", "gauge", "hold", "inlet", "jetty", "keel", "lock")
TOOLS = {
    "read_file": ("path", "offset", "limit"),
    "edit_file": ("path", "old", "new"),
    "bash": ("command", "timeout"),
    "search": ("pattern", "path"),
    "todo_write": ("todos",),
    "http_get": ("url",),
}
AGENT = "You are a coding agent in the repository harbour. Use the tools. Run the tests before you say that it works."
REMINDER = "<system-reminder>The file src/harbour/tides.py was changed by the user. Today is Tuesday.</system-reminder>"


@dataclass(slots=True)
class Agent:
    """A session in the making."""

    random: Random
    messages: list[Wire] = field(default_factory=list)
    calls: int = 0

    def say(self, role: str, content: object) -> None:
        self.messages.append({"role": role, "content": content})

    def call(self, text: str | None, *calls: tuple[str, Wire, str]) -> None:
        """The assistant's calls of one turn, each a name, its arguments and the result."""
        made = []
        for name, arguments, result in calls:
            self.calls += 1
            function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
            made.append(({"id": f"call_{self.calls:04}", "type": "function", "function": function}, result))
        self.messages.append({"role": "assistant", "content": text, "tool_calls": [call for call, _ in made]})
        for call, result in made:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def make_agent_session(rounds: int, seed: int) -> Wire:
    """Find a fault, mend it, test it, module by module."""
    agent = Agent(Random(seed))  # noqa: S311 - no secret: the same text in every run
    agent.say("system", AGENT)
    agent.say(
        "user", "The nightly build of harbour fails in several modules. Find out why, mend each, and keep a list."
    )
    for number in range(rounds):
        _mend(agent, MODULES[number % len(MODULES)], number)
        if number % 5 == 4:
            agent.say("assistant", f"{MODULES[number % len(MODULES)]} is mended: its totals were rounded too early.")
            agent.say("user", f"Good. Leave the public names of {MODULES[number % 3]} as they are. Go on.")
    agent.call("At last the whole build.", ("bash", {"command": "make -k all"}, write_build(agent.random, 1500)))
    for _ in range(2):
        agent.call(None, ("read_file", {"path": "src/harbour/tides.py"}, write_source("tides", 20)))
    agent.say("assistant", "All modules are mended, and all tests pass.")
    return {"id": f"agent-{seed}", "messages": agent.messages, "tools": _declare(TOOLS)}


def _mend(agent: Agent, module: str, number: int) -> None:
    path = f"src/harbour/{module}.py"
    source = write_source(module, 20)
    agent.call(
        f"I read {module} and its callers.",
        ("read_file", {"path": path}, source),
        ("search", {"pattern": f"{module}\\.total", "path": "src"}, write_matches(agent.random, module, 40)),
    )
    agent.call(
        None, ("bash", {"command": f"pytest -x tests/test_{module}.py", "timeout": 60}, write_tests(agent, module))
    )
    todos = [
        {"content": f"mend {one}", "status": "completed" if index < number else "pending"}
        for index, one in enumerate(MODULES)
    ]
    agent.call(None, ("todo_write", {"todos": todos}, "Todos have been modified successfully."))
    old, new = f"return round(sum(rows), {number})", "return sum(rows)"
    agent.call(
        "The totals are rounded before they are added.",
        ("edit_file", {"path": path, "old": old, "new": new}, f"Edited {path}: 1 replacement."),
        ("read_file", {"path": path}, source.replace("sum(rows)", "sum(rows, start=Decimal())", 1)),
    )
    if number % 3 == 0:
        agent.call(None, ("bash", {"command": "pip install -e . && make"}, write_build(agent.random, 80)))
    if number % 3 == 1:
        agent.call(None, ("http_get", {"url": f"http://127.0.0.1:8080/{module}"}, write_records(agent.random, 60)))
    if number % 4 == 2:
        agent.call(None, ("bash", {"command": f"git diff {path}"}, write_diff(path, old, new)))
        agent.say("user", [{"type": "text", "text": REMINDER}, {"type": "text", "text": f"How far is {module}?"}])
        agent.say("assistant", f"{module} needs one more test.")
        agent.say("user", "Write it.")


def write_source(module: str, functions: int) -> str:
    """A numbered listing, as tools that read files return it."""
    lines = [f'"""The {module} of a harbour."""', "", "from decimal import Decimal", ""]
    for number in range(functions):
        word = WORDS[number % len(WORDS)]
        lines += [f"def {word}_{number}(rows: list[Decimal]) -> Decimal:", f'    """The {word} of {module}."""']
        lines += [
            f"    if len(rows) > {number}:",
            f"        raise {word.title()}Error(rows)",
            "    return sum(rows)",
            "",
        ]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))


def write_matches(random: Random, module: str, count: int) -> str:
    """What grep prints."""
    return "\n".join(
        f"src/harbour/{random.choice(MODULES)}.py:{random.randrange(1, 900)}:    {module}.total({random.choice(WORDS)})"
        for _ in range(count)
    )


def write_tests(agent: Agent, module: str) -> str:
    """What pytest prints when one of many tests fails."""
    names = [f"tests/test_{module}.py::test_{word}_{number} PASSED" for number in range(12) for word in WORDS[:6]]
    at = agent.random.randrange(10, 90)
    failure = [
        f"=== FAILURES ===\n____ test_{module}_total ____\n\n    def test_{module}_total():",
        f">       assert {module}.total(ROWS) == Decimal('{at}.25')",
        f"E       AssertionError: assert Decimal('{at}') == Decimal('{at}.25')",
        f"\ntests/test_{module}.py:{at}: AssertionError",
        f"=== 1 failed, {len(names)} passed in 0.{at}s ===\nexit code 1",
    ]
    return "\n".join((*names, *failure))


def write_build(random: Random, steps: int) -> str:
    """A terminal's output with colours, a progress bar that overwrites itself, and a warning."""
    bar = "".join(f"\r\x1b[32m{'#' * (done // 5):20}\x1b[0m {done}%" for done in range(0, 101, 5))
    lines = [f"[{number}/{steps}] cc -O2 -c {random.choice(WORDS)}_{number}.c" for number in range(steps)]
    lines.insert(steps // 2, "\x1b[33mwarning\x1b[0m: tides.c:41: comparison of integers of different signs")
    return "\n".join((bar, *lines, "ld: harbour", "make: *** [Makefile:17: check] Error 2", ""))


def write_records(random: Random, count: int) -> str:
    """What a JSON API answers, indented."""
    rows = [
        {"id": number, "ship": random.choice(WORDS), "berth": random.randrange(40), "late": number == count // 2,
         "cargo": {"tonnes": random.randrange(9000), "kind": random.choice(WORDS)}, "note": None}
        for number in range(count)
    ]  # fmt: skip
    return orjson.dumps({"page": 1, "total": count, "rows": rows}, option=orjson.OPT_INDENT_2).decode()


def write_diff(path: str, old: str, new: str) -> str:
    """What git prints."""
    around = [f" # line {number}" for number in range(40)]
    head = [f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}", "@@ -1,81 +1,81 @@"]
    return "\n".join((*head, *around, f"-    {old}", f"+    {new}", *around))


def make_help_desk(seed: int) -> Wire:
    """A customer, an assistant and a system of bookings. Some clients give two calls the same id."""
    desk = Agent(Random(seed))  # noqa: S311 - as above
    desk.say(
        "system", "You help the customers of a ferry line. Ask before you change a booking.\n\n" + "Be brief. " * 40
    )
    for number in range(9):
        code = f"FRY{desk.random.randrange(10**5, 10**6)}"
        desk.say("user", f"What about my booking {code}? I want to leave on {1 + number} June instead.")
        booking = {
            "code": code,
            "cabin": desk.random.choice(WORDS),
            "fare": {"currency": "EUR", "cents": 4000 + number},
        }
        desk.call(None, ("find_booking", {"code": code}, orjson.dumps(booking).decode()))
        if number % 4 == 3:
            desk.calls -= 1
        desk.say("assistant", f"The booking {code} can be changed for {4 + number} EUR. Shall I?")
        desk.say("user", "Yes, please.")
        change = {"code": code, "day": f"2026-06-0{1 + number}"}
        desk.call(None, ("change_booking", change, '{"error": "sold out"}' if number == 6 else '{"status": "changed"}'))
        desk.say("assistant", "It is sold out on that day." if number == 6 else "It is changed.")
    tools = _declare({"find_booking": ("code",), "change_booking": ("code", "day")})
    return {"id": f"desk-{seed}", "messages": desk.messages, "tools": tools}


def make_short_session() -> Wire:
    """A file that is read again and again, in a session that fits most windows."""
    agent = Agent(Random(5))  # noqa: S311 - as above
    agent.say("system", AGENT)
    agent.say("user", "Say what tides.py does.")
    for _ in range(4):
        agent.call(None, ("read_file", {"path": "src/harbour/tides.py"}, write_source("tides", 20)))
    agent.say("assistant", "It adds up the rows of a table.")
    return {"id": "short", "messages": agent.messages, "tools": _declare(TOOLS)}


def make_talk() -> Wire:
    """A talk without tools, in German."""
    messages = [{"role": "system", "content": "Du hilfst beim Planen einer Reise."}]
    for day in range(1, 15):
        ask = f"Was können wir am {day}. Mai in Lübeck unternehmen? Wir sind zu fünft, und Jörg läuft ungern."
        told = f"Am {day}. Mai öffnet das Museumshaus um {8 + day % 4} Uhr. Der Eintritt kostet {6 + day} €." * 3
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": told}]
    return {"id": "talk", "messages": messages, "tools": []}


def _declare(tools: dict[str, tuple[str, ...]]) -> list[Wire]:
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"The tool {name} of this agent. It returns text.",
                "parameters": {
                    "type": "object",
                    "properties": {each: {"type": "array" if each == "todos" else "string"} for each in names},
                    "required": [names[0]],
                },
            },
        }
        for name, names in tools.items()
    ]


def list_requests(session: Wire) -> Iterator[tuple[str, Wire]]:
    """Captured requests of each API, by the name of the client: a stream, a plain request, the list of models."""
    for dialect in DIALECTS:
        yield dialect.name, _capture(dialect.name, "GET", "/v1/models", None)
        for stop, stream in ((2, True), (4, False), (9, True)):
            messages = _cut(session["messages"], stop)
            body = dialect.write(messages, session["tools"], stream=stream, model="harbour-1")
            yield dialect.name, _capture(dialect.name, "POST", dialect.path, body)


def _cut(messages: list[Wire], stop: int) -> list[Wire]:
    """The beginning up to at least `stop` messages that ends before an assistant's turn."""
    while messages[stop]["role"] != "assistant":
        stop += 1
    return messages[:stop]


def _capture(client: str, method: str, path: str, body: Wire | None) -> Wire:
    raw = b"" if body is None else orjson.dumps(body)
    headers = [["Host", "127.0.0.1:9001"], ["User-Agent", f"harbour-{client}/1.0"], ["Accept", "*/*"]]
    headers += [["Accept-Encoding", "gzip, deflate"], ["Authorization", "Bearer sk-made-up"], ["X-Request-Number", "7"]]
    if body is not None:
        headers += [["Content-Type", "application/json"], ["Content-Length", str(len(raw))]]
    return {
        "client": client, "version": "made up", "scenario": "normal", "method": method, "path": path, "query": "",
        "http": "1.1", "bytes": len(raw), "headers": headers, "body": body,
    }  # fmt: skip


def make_files() -> dict[str, bytes]:
    """All files, by their names in this folder."""
    sessions = {
        "agent": [make_agent_session(9, 1), make_agent_session(2, 2)],
        "desk": [make_help_desk(3), make_help_desk(4)],
        "short": [make_short_session()],
        "talk": [make_talk()],
    }
    rows: dict[str, list[Wire]] = {f"conversations/{name}.jsonl": made for name, made in sessions.items()}
    for name, request in list_requests(sessions["agent"][1]):
        rows.setdefault(f"wire/made-{name}.jsonl", []).append(request)
    return {name: b"".join(orjson.dumps(row) + b"\n" for row in made) for name, made in rows.items()}


if __name__ == "__main__":
    for name, content in make_files().items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
