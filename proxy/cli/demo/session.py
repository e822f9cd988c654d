"""The demo's session: a coding agent turns amounts from floats into integer cents, module by module.

Law: pure and deterministic. A valid transcript: every call is answered right behind it, and the assistant speaks last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from proxy.cli.demo.project import (
    Module,
    list_modules,
    number_lines,
    search,
    write_diff,
    write_source,
    write_test_log,
    write_tests,
)

MODEL = "demo-model"
MODULES_PER_PACKAGE = 6

_SYSTEM = """\
You are a coding agent that works in the repository /srv/ferry through tools. Look before you change anything, change
as little as possible, and run the tests after every change. Call tools in parallel where they do not depend on each
other. Never touch migrations/, never install packages, and never commit: a person reviews the working tree. Say in a
sentence what you do next. When a part of the work is done, report what changed and what is left.

The repository: ferry/ holds one package for each part of the business (fares, bookings, billing, desk), tests/ mirrors
it, ferry/money.py holds quantize() and the money types, ferry/core.py what all of them share. Python 3.12, pytest,
ruff; lines of at most 120 characters."""
_TASK = """\
Amounts are floats all over ferry/, and the auditors have found 1,312 invoices that are off by a cent. Turn every
amount into integer cents (ferry.money.Cents), module by module: source first, then its tests, then run them. Keep the
names and the order of the arguments, because the kiosks call us by position. Rounding stays half to even, by
quantize() and nowhere else. Do not touch the rates and discounts: those are shares, not amounts. Go on until
everything is green, and stop after each package so that I can have a look."""
_FOLLOW_UPS = (
    """\
Looks good. One thing: the harbour masters read the logs, so keep every log line as it is, even where it prints cents
now. Go on with the next package.""",
    """\
Fine. Ticket FER-2291 says that refunds of cancelled crossings are rounded twice: check that while you are there, but do
not change the behaviour, just tell me. Go on.""",
    """\
I have had a look at the ledger: all right. Mind that webhooks must go on sending decimals to partners; to_decimal in
ferry/money.py is for that. Go on with the last package.""",
    "Thanks. Give me the list of what a reviewer should look at twice.",
)
_PLANS = (
    "Next is {name}. Where are its amounts used?",
    "Now {path}. I look for its callers before I read it.",
    "{name} comes next; it has {functions} functions, all of them take an amount.",
    "On to {name}. I check first who depends on it.",
)
_PARAMETERS = {
    "list_files": {"path": "directory, relative to the repository"},
    "read_file": {"path": "file, relative to the repository"},
    "search": {"pattern": "regular expression, matched line by line", "path": "directory or file to search in"},
    "edit_file": {"path": "file, relative to the repository", "patch": "the change as a unified diff"},
    "run_tests": {"path": "directory or file of tests; tests for all of them"},
}
_PURPOSES = {
    "list_files": "List the files of a directory, with their sizes.",
    "read_file": "Show a file, its lines numbered.",
    "search": "Find lines by a regular expression; at most 40 are shown.",
    "edit_file": "Apply a unified diff to a file. Fails when a hunk does not apply.",
    "run_tests": "Run pytest and show what it prints.",
}


@dataclass(frozen=True, slots=True)
class Session:
    """A transcript, oldest message first, as the JSON of each message and of the tools."""

    tools: bytes
    messages: tuple[bytes, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """The indexes of the assistant's messages: each of them answers a request of all that stands before it."""
        return tuple(index for index, message in enumerate(self.messages) if message.startswith(b'{"role":"assistant"'))

    def request_body(self, turn: int) -> bytes:
        """The request that the assistant's message at `turn` answers."""
        options = b'"stream":true,"stream_options":{"include_usage":true}'
        messages = b",".join(self.messages[:turn])
        model = orjson.dumps(MODEL)
        return b'{"model":%b,%b,"tools":%b,"messages":[%b]}' % (model, options, self.tools, messages)


@dataclass(slots=True)
class _Transcript:
    """A transcript in the making."""

    messages: list[bytes] = field(default_factory=list)
    calls: int = 0
    test_runs: int = 0

    def say(self, role: str, text: str) -> None:
        self.messages.append(orjson.dumps({"role": role, "content": text}))

    def act(self, text: str, *steps: tuple[str, dict[str, str], str]) -> None:
        """An assistant message with calls, each step a tool's name, its arguments and its result, and the results."""
        calls: list[dict[str, object]] = []
        results: list[dict[str, str]] = []
        for name, arguments, result in steps:
            self.calls += 1
            call_id = f"call_{self.calls:04}"
            function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
            calls.append({"id": call_id, "type": "function", "function": function})
            results.append({"role": "tool", "tool_call_id": call_id, "content": result})
        self.messages.append(orjson.dumps({"role": "assistant", "content": text, "tool_calls": calls}))
        self.messages.extend(map(orjson.dumps, results))

    def run_tests(self, text: str, path: str, modules: Sequence[Module], failing: Sequence[Module] = ()) -> None:
        self.test_runs += 1
        self.act(text, ("run_tests", {"path": path}, write_test_log(modules, failing, self.test_runs)))


def make_session(modules: int = 24) -> Session:
    """The session, as long as its first `modules` modules take: all 24 fill a window of 32,000 tokens several times."""
    everything = list_modules()
    transcript = _Transcript()
    transcript.say("system", _SYSTEM)
    transcript.say("user", _TASK)
    _look_around(transcript, everything)
    for place in range(modules):
        _migrate(transcript, everything, place)
        if (place + 1) % MODULES_PER_PACKAGE == 0:
            _report(transcript, everything, place)
    transcript.say("assistant", _sum_up(everything[:modules]))
    return Session(_write_tools(), tuple(transcript.messages))


def _write_tools() -> bytes:
    tools: list[dict[str, object]] = []
    for name, parameters in _PARAMETERS.items():
        properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(parameters)}
        function = {"name": name, "description": _PURPOSES[name], "parameters": schema}
        tools.append({"type": "function", "function": function})
    return orjson.dumps(tools)


def _look_around(transcript: _Transcript, everything: Sequence[Module]) -> None:
    """The first steps: what is there, what the tests say, how far the floats reach."""
    listing = "\n".join(
        f"{len(write_source(module, migrated=False)):>6}  {module.path}\n"
        f"{len(write_tests(module, migrated=False)):>6}  {module.test_path}"
        for module in everything
    )
    transcript.act("I look around first.", ("list_files", {"path": "."}, listing))
    transcript.run_tests("Are the tests green before I start?", "tests", everything)
    files = [(module.path, write_source(module, migrated=False)) for module in everything]
    arguments = {"pattern": ": float", "path": "ferry"}
    transcript.act("All green. How far do the floats reach?", ("search", arguments, search(": float", files)))


def _migrate(transcript: _Transcript, everything: Sequence[Module], place: int) -> None:
    """One module: search, read source and tests at once, edit, fail, mend the tests, pass."""
    module = everything[place]
    before, after = (write_source(module, migrated=migrated) for migrated in (False, True))
    old_tests, new_tests = (write_tests(module, migrated=migrated) for migrated in (False, True))
    files = _snapshot(everything, place)
    pattern = "|".join(function.name for function in module.functions[:6])
    plan = _PLANS[place % len(_PLANS)].format(name=module.name, path=module.path, functions=len(module.functions))
    transcript.act(plan, ("search", {"pattern": pattern, "path": "."}, search(pattern, files)))
    transcript.act(
        "Source and tests side by side.",
        ("read_file", {"path": module.path}, number_lines(before)),
        ("read_file", {"path": module.test_path}, number_lines(old_tests)),
    )
    _edit(transcript, "The amounts become Cents; rates stay as they are.", module.path, before, after)
    first = module.functions[0].name
    transcript.run_tests("The tests still pass floats, so some must fail now.", module.test_path, [module], [module])
    if place % 3 == 1:
        leftover = search(r"float|\d\.\d\d\b", [(module.path, after), (module.test_path, old_tests)])
        arguments = {"pattern": r"float|\d\.\d\d\b", "path": module.package}
        transcript.act(f"{first} fails as expected. Is a float left?", ("search", arguments, leftover))
    _edit(transcript, f"Only the tests of {module.name} are left.", module.test_path, old_tests, new_tests)
    package = [other for other in everything if other.package == module.package]
    transcript.run_tests(f"Does all of {module.package} pass?", f"tests/{module.package}", package)


def _edit(transcript: _Transcript, text: str, path: str, before: str, after: str) -> None:
    patch = write_diff(path, before, after)
    transcript.act(text, ("edit_file", {"path": path, "patch": patch}, f"{path}: {patch.count('@@ -')} hunks applied"))


def _snapshot(everything: Sequence[Module], place: int) -> list[tuple[str, str]]:
    """Every file as it stands when the module at `place` is taken up."""
    files: list[tuple[str, str]] = []
    for index, module in enumerate(everything):
        files.append((module.path, write_source(module, migrated=index < place)))
        files.append((module.test_path, write_tests(module, migrated=index < place)))
    return files


def _report(transcript: _Transcript, everything: Sequence[Module], place: int) -> None:
    """A package is done: the whole suite, a report, and what the user says to it."""
    done = everything[place + 1 - MODULES_PER_PACKAGE : place + 1]
    transcript.run_tests("The package is through. Now the whole suite.", "tests", everything)
    functions = sum(len(module.functions) for module in done)
    transcript.say(
        "assistant",
        f"{done[0].package} is done: {functions} functions in {len(done)} modules take and return Cents, and the whole"
        " suite passes. Argument names, their order and every log line are as they were. Shall I go on?",
    )
    transcript.say("user", _FOLLOW_UPS[place // MODULES_PER_PACKAGE % len(_FOLLOW_UPS)])


def _sum_up(done: Sequence[Module]) -> str:
    lines = [f"- {module.path}: {module.functions[0].name} and {len(module.functions) - 1} others" for module in done]
    return "Done so far, all tests pass. To be looked at twice:\n" + "\n".join(lines)
