"""`trimtab demo`: sends an invented session through a real proxy to a simulated upstream, and shows what it measured.

Law: only the session and the upstream are invented. Every number comes from this run: from what the upstream received,
or from the statuses that the client got. The upstream reports exactly what it received. Like OpenAI, it refuses a
prompt larger than the window, and a tool call that its result does not follow at once.

The session is deterministic, and in memory: a coding agent changes amounts from floats to integer cents, module by
module, in the repository of the invented booking service of a ferry line. Its tools do what they say; only
`run_tests` runs nothing: a test passes if its file and the tested module use the same type for amounts.
"""

import asyncio
import inspect
import re
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import accumulate, takewhile
from math import inf
from typing import Any

import aiohttp
import click
import msgspec
import orjson
import uvloop
from aiohttp import web
from msgspec.structs import astuple, replace
from rich.console import Console
from rich.progress import track
from rich.table import Table

from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.server.app import listen_at, run_proxy
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Counting, UndecodableError
from trimtab.rules.conversation import CountTokens
from trimtab.rules.results.pairing import pair_tool_calls
from trimtab.rules.tokens.messages import MESSAGE_TOKENS

_Json = dict[str, Any]
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
MODULES = [(package, module) for package, modules in PACKAGES.items() for module in modules]
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
        for place, (package, module) in enumerate(MODULES):
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
    messages: list[_Json] = []

    def say(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})

    def act(self, text: str, *steps: tuple[str, dict[str, str]]) -> None:
        """Say something and call tools in parallel, then append their results. A step is a tool and its arguments."""
        calls, results = list[_Json](), list[_Json]()
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
        self.act("Source and tests side by side.", *(("read_file", {"path": path}) for path in (source, tests)))
        migrated = re.sub(r"\bfloat\b", "Cents", self.project.files[source])
        self.act(f"{source} gets Cents.", ("write_file", {"path": source, "text": migrated}))
        self.act("The tests still pass floats, so they must fail now.", ("run_tests", {"path": tests}))
        migrated = re.sub(r"(\d)\.25\b", r"\g<1>25", self.project.files[tests])
        self.act("Now the tests.", ("write_file", {"path": tests, "text": migrated}))
        self.act(f"Does all of {package} pass?", ("run_tests", {"path": f"tests/{package}"}))


def make_session(modules: int = 24) -> Session:
    """The session for the first `modules` modules. All 24 fill a window of 32,000 tokens several times."""
    agent = _Agent()
    agent.say("system", _SYSTEM)
    agent.say("user", _TASK)
    agent.act("I look at what there is.", ("list_files", {"path": "ferry"}), ("run_tests", {"path": "tests"}))
    for package, module in MODULES[:modules]:
        agent.migrate(package, module)
        if module == PACKAGES[package][-1]:
            agent.act(f"{package} is through. Now the whole suite.", ("run_tests", {"path": "tests"}))
            agent.say("assistant", f"{package} is done: all of it takes Cents, and every test passes. Shall I go on?")
            agent.say("user", _FOLLOW_UP.format(package))
    agent.say(
        "assistant", f"All tests pass. To be looked at twice: {', '.join(module for _, module in MODULES[:modules])}."
    )
    return Session(orjson.dumps(list(map(_describe_tool, TOOLS))), tuple(map(orjson.dumps, agent.messages)))


def _describe_tool(name: str) -> _Json:
    method = getattr(Project, name)
    arguments = list(inspect.signature(method).parameters)[1:]
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": arguments}
    return {"type": "function", "function": {"name": name, "description": method.__doc__, "parameters": parameters}}


PIECE_CHARS = 48  # characters of an answer in one event of a stream. Chosen: any size works.
NOTE_PATHS = 60  # paths that a handoff note names at most. Chosen: the project has 48 files.
_PATH = re.compile(r"\b(?:[\w-]+/)+[\w-]+\.\w{1,4}\b")
_FRAME: _Json = {"id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": MODEL}


class Cost(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class PromptCache:
    """A prompt cache that never forgets. It compares beginnings of prompts by whole messages, byte for byte."""

    def __init__(self, count: CountTokens) -> None:
        self.counting = Counting(count, make_known())
        self._seen: set[bytes] = set()

    def read(self, body: bytes, window_tokens: float = inf) -> Cost:
        request = CHAT.read(body)
        conversation = CHAT.decode(request, self.counting)
        sizes = [conversation.fixed_tokens, *(message.tokens for message in conversation.messages)]
        pieces = (b"\n".join(request.fixed), *request.raws)
        prefixes = tuple(accumulate(pieces, lambda chain, piece: sha256(chain + piece).digest(), initial=b""))[1:]
        warm = takewhile(lambda prefix: prefix[0] in self._seen, zip(prefixes, sizes, strict=True))
        cost = Cost(sum(sizes), sum(size for _, size in warm))
        if cost.prompt_tokens <= window_tokens:
            self._seen.update(prefixes)
        return cost


class Served(msgspec.Struct, frozen=True):
    """One request as the upstream saw it."""

    is_stream: bool
    status: int
    cost: Cost


class SimulatedUpstream:
    """Answers each prompt of the session with the message that follows it there. served: requests, oldest first."""

    def __init__(self, session: Session, window_tokens: int, count: CountTokens) -> None:
        self.served: list[Served] = []
        self._window_tokens = window_tokens
        self._cache = PromptCache(count)
        self.count = count
        messages = list(map(orjson.loads, session.messages))
        self._script = {_name(messages[turn - 1]): messages[turn] for turn in session.turns}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        body = await request.content.read()
        try:
            cost, chat = self._cache.read(body, self._window_tokens), orjson.loads(body)
        except (UndecodableError, orjson.JSONDecodeError):
            return _refuse("the body is not a chat request", "invalid_json")
        is_stream, response = chat.get("stream") is True, self._judge(cost, body)
        if response is None:
            cost, response = self._answer(cost, chat["messages"], is_stream=is_stream)
        self.served.append(Served(is_stream, response.status, cost))
        return response

    def _judge(self, cost: Cost, body: bytes) -> web.Response | None:
        conversation = CHAT.decode(CHAT.read(body), self._cache.counting)
        if cost.prompt_tokens > self._window_tokens:
            most = f"This model's maximum context length is {self._window_tokens} tokens."
            message = f"{most} However, your messages resulted in {cost.prompt_tokens} tokens."
            return _refuse(message, "context_length_exceeded")
        if conversation.messages and pair_tool_calls(conversation, count=self.count).conversation is conversation:
            return None
        return _refuse("An assistant message with 'tool_calls' must be followed by tool messages.", None)

    def _answer(self, cost: Cost, messages: list[_Json], *, is_stream: bool) -> tuple[Cost, web.Response]:
        answer = (self._script.get(_name(messages[-1])) if is_stream else None) or _write_note(messages)
        functions = [call["function"] for call in answer.get("tool_calls", ())]
        written = [answer["content"], *(function["name"] + function["arguments"] for function in functions)]
        cost = replace(cost, completion_tokens=MESSAGE_TOKENS + sum(map(self.count, written)))
        usage: _Json = {"prompt_tokens": cost.prompt_tokens, "completion_tokens": cost.completion_tokens}
        usage["total_tokens"] = cost.prompt_tokens + cost.completion_tokens
        usage["prompt_tokens_details"] = {"cached_tokens": cost.cached_tokens}
        if is_stream:
            return cost, web.Response(text=_write_stream(answer, usage), content_type="text/event-stream")
        choices = [{"index": 0, "message": answer, "finish_reason": "stop"}]
        return cost, web.json_response({**_FRAME, "choices": choices, "usage": usage})


def _name(message: _Json) -> str:
    """Identifies a prompt of the session by its last message: each call id and each user message occurs only once."""
    return str(message.get("tool_call_id") or message.get("content"))


def _write_note(messages: list[_Json]) -> _Json:
    paths = list(dict.fromkeys(_PATH.findall("\n".join(str(message.get("content")) for message in messages))))
    done = "1. Progress: the files below, in order.\n2. Constraints: as the task says.\n3. Remaining: the other files."
    return {"role": "assistant", "content": f"{done}\n4. Exact data: {', '.join(paths[-NOTE_PATHS:]) or 'none'}."}


def _write_stream(answer: _Json, usage: _Json) -> str:
    text, calls = answer["content"], answer.get("tool_calls", ())
    deltas: list[_Json] = [{"content": text[start : start + PIECE_CHARS]} for start in range(0, len(text), PIECE_CHARS)]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    ends = [*((delta, None) for delta in deltas), ({"role": "assistant"}, "tool_calls" if calls else "stop")]
    fields: list[_Json] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in ends]
    fields.append({"choices": [], "usage": usage})
    events = [orjson.dumps({**_FRAME, "object": "chat.completion.chunk", **each}).decode() for each in fields]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])


def _refuse(message: str, code: str | None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}
    return web.json_response({"error": error}, status=400)


WINDOW_TOKENS = 32_000  # chosen: the whole session is more than three times as long, so many requests need compaction
RESERVE_TOKENS = 4_000  # room for the completion. Chosen: above every completion of the session.

CACHED_INPUT_PRICE, INPUT_PRICE, OUTPUT_PRICE = 0.1, 1.0, 4.0
"""Dollars for a million tokens: cached, uncached, of completions. Source: usual ratios of list prices."""
PRICES = f"prices={{unit: usd, input: {INPUT_PRICE}, cached_input: {CACHED_INPUT_PRICE}, output: {OUTPUT_PRICE}}}"
"""The setting for them. The upstream is local, but the demo shows what a session costs at a provider."""


@click.command()
@click.option("--keep", is_flag=True, help="Keep the proxy, with the session on its dashboard, running until Ctrl-C.")
def demo(*, keep: bool) -> None:
    """Replay a long agent session to a simulated upstream. It needs no key and no network.

    The session goes through a real proxy. The command prints the tokens, the refused requests and the cost, each with
    and without trimtab.
    """
    uvloop.run(run_demo(keep=keep))


class Replay(msgspec.Struct, frozen=True):
    """What was measured.

    originals: the prompts as the client sent them, with the cached tokens that an unlimited window would have given.
    statuses: those that the client got. served: every request that the upstream got, those for summaries included.
    """

    originals: list[Cost]
    statuses: list[int]
    served: list[Served]

    def sum_cost(self, *, is_stream: bool) -> Cost:
        return sum((one.cost for one in self.served if one.is_stream == is_stream and one.status == 200), Cost())


@asynccontextmanager
async def run_stage(
    session: Session, window_tokens: int = WINDOW_TOKENS, *, keeps_text: bool = False
) -> AsyncIterator[tuple[str, SimulatedUpstream]]:
    """Run an upstream with this window, and the proxy, which assumes WINDOW_TOKENS; yields the proxy's URL first."""
    log = get_log()
    compactors = Compactors(log)
    upstream = SimulatedUpstream(session, window_tokens, compactors.choose(PolicyConfig(), MODEL).count)
    window = f"defaults={{context_window: {WINDOW_TOKENS}, completion_reserve: {RESERVE_TOKENS}}}"
    server = web.Server(upstream.handle, access_log=None)
    async with listen_at(server, "127.0.0.1:0") as (_, upstream_url):
        text = f"dashboard.keep_text={str(keeps_text).lower()}"
        settings = (f"upstream.base_url={upstream_url}/v1", "listen=127.0.0.1:0", "store=memory", window, PRICES, text)
        config = load_config(settings=settings, environment={})
        async with run_proxy(config, log, compactors) as proxy:
            yield proxy.url, upstream


async def replay_session(url: str, upstream: SimulatedUpstream, session: Session, turns: Iterable[int]) -> Replay:
    originals, statuses, endless = list[Cost](), list[int](), PromptCache(upstream.count)
    async with aiohttp.ClientSession(f"{url}/", headers={"Content-Type": "application/json"}) as client:
        for turn in turns:
            body = session.request_body(turn)
            originals.append(endless.read(body))
            async with client.post("v1/chat/completions", data=body) as answer:
                await answer.read()
                statuses.append(answer.status)
    return Replay(originals, statuses, upstream.served)


async def run_demo(*, keep: bool) -> None:
    """Replay the session and print the result. With `keep`, go on serving until SIGINT or SIGTERM."""
    configure_log("warning")
    console = Console(highlight=False)
    session = make_session()
    console.print(
        f"Sending a coding agent's session of {len(session.turns)} requests through trimtab to a simulated upstream"
        f" with a window of {WINDOW_TOKENS:,} tokens.\n"
    )
    async with run_stage(session, keeps_text=keep) as (url, upstream):
        # Without a terminal, a progress bar would only clutter the output.
        turns = track(session.turns, "replaying", console=console, disable=not console.is_terminal)
        show_replay(console, await replay_session(url, upstream, session, turns))
        if not keep:
            return
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        exports = f"\nexport OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY=demo\n"
        more = f"The model is {MODEL}; the proxy's metrics are at {url}/metrics. Ctrl-C stops both servers."
        console.print(f"\nSee the session on the dashboard: {url}/trimtab/", exports, more, sep="\n", soft_wrap=True)
        await stop.wait()


def show_replay(console: Console, replay: Replay) -> None:
    refused = sum(one.prompt_tokens > WINDOW_TOKENS for one in replay.originals)
    console.print(_write_table(replay, refused))
    told = f"{refused} of {len(replay.originals)} requests"
    console.print(f"\nWithout trimtab the upstream would have refused {told}.", style="bold")


def _write_table(replay: Replay, refused: int) -> Table:
    prices = f"input {INPUT_PRICE:g}, cached {CACHED_INPUT_PRICE:g}, output {OUTPUT_PRICE:g}"
    caption = (
        f"Cost at the prices {prices}, summaries included. The cost without trimtab is that of an upstream with an"
        " unlimited window and a perfect prompt cache."
    )
    table = Table("", caption=caption, caption_justify="left")
    table.add_column("without trimtab", justify="right")
    table.add_column("with trimtab", justify="right", style="bold")
    sent, summaries = replay.sum_cost(is_stream=True), replay.sum_cost(is_stream=False)
    original = sum(replay.originals, Cost(completion_tokens=sent.completion_tokens))
    largest = max(one.prompt_tokens for one in replay.originals)
    largest_sent = max((one.cost.prompt_tokens for one in replay.served), default=0)
    table.add_row("requests", *[f"{len(replay.originals)}"] * 2)
    table.add_row("requests refused", f"{refused}", f"{sum(status != 200 for status in replay.statuses)}")
    table.add_row("prompt tokens", f"{original.prompt_tokens:,}", f"{sent.prompt_tokens:,}")
    table.add_row(f"largest prompt (window {WINDOW_TOKENS:,})", f"{largest:,}", f"{largest_sent:,}")
    table.add_row("read from the prompt cache", f"{share_cached(original):.1%}", f"{share_cached(sent):.1%}")
    table.add_row("summaries made", "", f"{sum(not one.is_stream for one in replay.served)}")
    table.add_row("summary prompt tokens", "", f"{summaries.prompt_tokens:,}")
    table.add_row("summary completion tokens", "", f"{summaries.completion_tokens:,}")
    table.add_row("cost", "100.0%", f"{price(sent + summaries) / price(original):.1%}")
    return table


def share_cached(cost: Cost) -> float:
    return cost.cached_tokens / max(cost.prompt_tokens, 1)


def price(cost: Cost) -> float:
    cached, uncached = cost.cached_tokens, cost.prompt_tokens - cost.cached_tokens
    return uncached * INPUT_PRICE + cached * CACHED_INPUT_PRICE + cost.completion_tokens * OUTPUT_PRICE
