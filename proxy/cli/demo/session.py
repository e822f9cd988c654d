"""The demo's session: a coding agent changes amounts from floats to integer cents, module by module.

Law: deterministic. A valid transcript: the results of each call follow it at once, and the assistant speaks last.
"""

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.cli.demo.project import PACKAGES, Project

MODEL = "demo-model"
TOOLS = ("list_files", "read_file", "search", "write_file", "run_tests")

_SYSTEM = """\
You are a coding agent that works in the repository /srv/ferry through tools. Look before you change anything, change
as little as possible, and run the tests after every change. Call tools in parallel if they do not depend on each
other. Never touch migrations/, never install packages, and never commit: a person reviews the working tree."""
_TASK = """\
Amounts are floats all over ferry/, and the auditors have found 1,312 invoices that are off by a cent. Turn every
amount into integer cents (Cents), module by module: source first, then its tests, then run them. Keep the names and
the order of the arguments, because the kiosks call us by position. Stop after each package so that I can look."""
_FOLLOW_UP = (
    "{} looks good. The harbour masters read the logs: keep every log line as it is. Go on with the next package."
)


@dataclass(frozen=True, slots=True)
class Session:
    """A transcript.

    tools: the JSON of all tools.
    messages: the JSON of each message, oldest first.
    """

    tools: bytes
    messages: tuple[bytes, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """Indexes of the assistant's messages. Each answers a request that holds all messages before it."""
        return tuple(index for index, message in enumerate(self.messages) if message.startswith(b'{"role":"assistant"'))

    def request_body(self, turn: int) -> bytes:
        """The body of the request that the assistant's message at index `turn` answers."""
        head = b'{"model":"%b","stream":true,"stream_options":{"include_usage":true}' % MODEL.encode()
        return b'%b,"tools":%b,"messages":[%b]}' % (head, self.tools, b",".join(self.messages[:turn]))


@dataclass(slots=True)
class _Agent:
    """Writes the transcript while it works in the project."""

    project: Project = field(default_factory=Project)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def say(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})

    def act(self, text: str, *steps: tuple[str, dict[str, str]]) -> None:
        """Say something and call tools in parallel, then append their results. A step is a tool and its arguments."""
        calls: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for tool, arguments in steps:
            call_id = f"call_{len(self.messages) + len(calls):04}"
            function = {"name": tool, "arguments": orjson.dumps(arguments).decode()}
            calls.append({"id": call_id, "type": "function", "function": function})
            result = getattr(self.project, tool)(**arguments)
            results.append({"role": "tool", "tool_call_id": call_id, "content": result})
        self.messages += [{"role": "assistant", "content": text, "tool_calls": calls}, *results]

    def migrate(self, package: str, module: str) -> None:
        """Change one module: search, read source and tests in parallel, edit, fail, fix the tests, pass."""
        source, tests = f"ferry/{package}/{module}.py", f"tests/{package}/test_{module}.py"
        self.act(f"Next is {module}. Who uses it?", ("search", {"pattern": rf"\b{module}\b|: float", "path": "ferry"}))
        reads = [("read_file", {"path": path}) for path in (source, tests)]
        self.act("Source and tests side by side.", *reads)
        migrated = re.sub(r"\bfloat\b", "Cents", self.project.files[source])
        self.act(f"{source} gets Cents.", ("write_file", {"path": source, "text": migrated}))
        self.act("The tests still pass floats, so they must fail now.", ("run_tests", {"path": tests}))
        migrated = re.sub(r"(\d)\.25\b", r"\g<1>25", self.project.files[tests])
        self.act("Now the tests.", ("write_file", {"path": tests, "text": migrated}))
        self.act(f"Does all of {package} pass?", ("run_tests", {"path": f"tests/{package}"}))


def make_session(modules: int = 24) -> Session:
    """The session for the first `modules` modules. All 24 fill a window of 32,000 tokens several times."""
    agent = _Agent()
    names = [(package, module) for package, names in PACKAGES.items() for module in names][:modules]
    agent.say("system", _SYSTEM)
    agent.say("user", _TASK)
    agent.act("I look at what there is.", ("list_files", {"path": "ferry"}), ("run_tests", {"path": "tests"}))
    for package, module in names:
        agent.migrate(package, module)
        if module == PACKAGES[package][-1]:
            agent.act(f"{package} is through. Now the whole suite.", ("run_tests", {"path": "tests"}))
            agent.say("assistant", f"{package} is done: all of it takes Cents, and every test passes. Shall I go on?")
            agent.say("user", _FOLLOW_UP.format(package))
    agent.say("assistant", f"All tests pass. To be looked at twice: {', '.join(module for _, module in names)}.")
    return Session(orjson.dumps(list(map(_describe_tool, TOOLS))), tuple(map(orjson.dumps, agent.messages)))


def _describe_tool(name: str) -> dict[str, Any]:
    method = getattr(Project, name)
    arguments = list(inspect.signature(method).parameters)[1:]
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": arguments}
    return {"type": "function", "function": {"name": name, "description": method.__doc__, "parameters": parameters}}
