"""The demo's session: a coding agent changes amounts from floats to integer cents, module by module.

Law: deterministic, and in memory. A valid transcript: the results of each call follow it at once, and the assistant
speaks last. The agent works in the repository of the invented booking service of a ferry line. Its tools really do what
they say. Only `run_tests` runs nothing: a test passes if its file and the tested module use the same type for amounts.
"""

import inspect
import re
from typing import Any

import msgspec
import orjson

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
PACKAGES = {
    "fares": ("pricing", "discounts", "surcharges", "season", "currency", "bundles"),
    "bookings": ("cart", "hold", "confirm", "cancel", "refund", "voucher"),
    "billing": ("invoice", "ledger", "payout", "tax", "reconcile", "export"),
    "desk": ("quotes", "orders", "webhooks", "reports", "kiosk", "agents"),
}
SEARCH_HITS = 40  # chosen. The description of the tool `search` names the same number.

_VERBS = ("compute", "apply", "split", "check", "merge", "settle", "quote", "reverse", "carry", "cap", "share", "post")
_NOUNS = ("fare", "deposit", "fee", "balance", "surcharge", "credit", "rebate", "toll", "total", "refund", "levy")
_PARTIES = ("passenger", "vehicle", "group", "harbour", "agent", "cabin", "pet", "bicycle", "crew", "freight", "child")
_FUNCTION = """

def {name}({party}: Party, {noun}: float, sailing: Sailing, ledger: Ledger) -> float:
    entry = ledger.find({party}.id, kind="{noun}")  # harbour {number} books it a day late
    due: float = quantize({noun} * RATES[{party}.kind, sailing.season]) - (entry.amount if entry else ZERO)
    if due < ZERO:
        raise FareError(f"{noun} of {party} {{{party}.id}} is negative: {{{noun}}}")
    ledger.append(Entry({party}.id, "{noun}", due, reason="{name}", harbour={number}))
    return due
"""
_TEST = """

def test_{name}(sailing, ledger) -> None:
    {party} = make_party("{party}", id={number})
    amount = {name}({party}, {number}.25, sailing, ledger)
    assert amount == {number}.25
"""


class Project:
    """The repository and the agent's tools: each public method is a tool, its docstring the tool's description."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        modules = [(package, name) for package, names in PACKAGES.items() for name in names]
        for place, (package, module) in enumerate(modules):
            words = [_choose_words(place, number) for number in range(5 + place * 7 % 9)]
            names = ", ".join(str(each["name"]) for each in words)
            for path, head, template in (
                (f"ferry/{package}/{module}.py", f"from ferry.{package}.tables import RATES", _FUNCTION),
                (f"tests/{package}/test_{module}.py", f"from ferry.{package}.{module} import {names}", _TEST),
            ):
                self.files[path] = head + "".join(template.format(**each) for each in words)

    def list_files(self, path: str) -> str:
        """List the files of a directory, with their sizes."""
        return "\n".join(f"{len(text):>6}  {name}" for name, text in self.files.items() if name.startswith(path))

    def read_file(self, path: str) -> str:
        """Show a file, its lines numbered."""
        return "\n".join(f"{number:>5}  {line}" for number, line in enumerate(self.files[path].splitlines(), start=1))

    def search(self, pattern: str, path: str) -> str:
        """Find lines by a regular expression; at most 40 are shown."""
        found = [
            f"{name}:{number}: {line.strip()}"
            for name, text in self.files.items()
            for number, line in enumerate(text.splitlines(), start=1)
            if name.startswith(path) and re.search(pattern, line)
        ]
        return "\n".join([*found[:SEARCH_HITS], f"({len(found)} matches in all)"])

    def write_file(self, path: str, text: str) -> str:
        """Write a whole file, in place of the one that is there."""
        self.files[path] = text
        return f"{path}: {len(text.splitlines())} lines written"

    def run_tests(self, path: str) -> str:
        """Run pytest and show what it prints."""
        lines, failures, failed, run = ["=" * 29 + " test session starts " + "=" * 29], [], 0, 0
        for file in (name for name in self.files if name.startswith("tests/") and name.startswith(path)):
            source = file.replace("tests/", "ferry/").replace("test_", "")
            fails = ("Cents" in self.files[source]) == (".25" in self.files[file])
            for name in re.findall(r"def test_(\w+)", self.files[file]):
                run, failed = run + 1, failed + fails
                lines.append(f"{file}::test_{name} {'FAILED' if fails else 'PASSED'} [{run:>4}]")
                error = "E   TypeError: unsupported operand type(s) for -: 'Cents' and 'float'"
                failures += [f"_____ test_{name} _____", error, f"{source}:{31 * run % 97}: in {name}"] * fails
        counts = f"{failed} failed, {run - failed} passed" if failed else f"{run} passed"
        return "\n".join([*lines, *failures, f"===== {counts} in {1.2 + run * 0.043:.2f}s ====="])


def _choose_words(place: int, number: int) -> dict[str, object]:
    """The words that a function and its test are made of. The function's name is unique within its module."""
    verb = _VERBS[(place * 5 + number) % len(_VERBS)]
    noun = _NOUNS[(place * 3 + number * 2) % len(_NOUNS)]
    party = _PARTIES[(place + number * 4) % len(_PARTIES)]
    return {"name": f"{verb}_{party}_{noun}", "noun": noun, "party": party, "number": 10 + (place * 31 + number) % 89}


class Session(msgspec.Struct, frozen=True):
    """A transcript: the JSON of all tools, and of each message, oldest first."""

    tools: bytes
    messages: tuple[bytes, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        return tuple(index for index, message in enumerate(self.messages) if message.startswith(b'{"role":"assistant"'))

    def request_body(self, turn: int) -> bytes:
        head = b'{"model":"%b","stream":true,"stream_options":{"include_usage":true}' % MODEL.encode()
        return b'%b,"tools":%b,"messages":[%b]}' % (head, self.tools, b",".join(self.messages[:turn]))


class _Agent(msgspec.Struct):
    project: Project = msgspec.field(default_factory=Project)
    messages: list[dict[str, Any]] = []

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
