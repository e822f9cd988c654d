"""`trimtab demo`: sends an invented session through a real proxy to a simulated upstream, and shows what it measured.

Law: only the session and the upstream are invented. Every number comes from this run: from what the upstream received,
or from the responses that the client got. The upstream reports exactly what it received. Like OpenAI, it refuses a
prompt larger than the window, and a tool call that its result does not follow at once.
"""

import asyncio
import hashlib
import re
import signal
import statistics
from collections import Counter
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

from trimtab.proxy.cli.demo_session import MODEL, Session, make_session
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

PIECE_CHARS = 48  # characters of an answer in one event of a stream. Chosen: any size works.
NOTE_PATHS = 60  # paths that a handoff note names at most. Chosen: the project has 48 files.
_PATH = re.compile(r"\b(?:[\w-]+/)+[\w-]+\.\w{1,4}\b")

_Json = dict[str, Any]
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
        self._counting = Counting(count, make_known())
        self._seen: set[bytes] = set()

    def read(self, body: bytes, window_tokens: float = inf) -> Cost:
        request = CHAT.read(body)
        conversation = CHAT.decode(request, self._counting)
        sizes = [conversation.fixed_tokens, *(message.tokens for message in conversation.messages)]
        pieces = (b"\n".join(request.fixed), *request.raws)
        prefixes = tuple(accumulate(pieces, lambda chain, piece: sha256(chain + piece).digest(), initial=b""))[1:]
        warm = takewhile(lambda prefix: prefix[0] in self._seen, zip(prefixes, sizes, strict=True))
        cost = Cost(sum(sizes), sum(size for _, size in warm))
        if cost.prompt_tokens <= window_tokens:
            self._seen.update(prefixes)
        return cost


class Served(msgspec.Struct, frozen=True):
    """One request as the upstream saw it. `answer_hash` is the SHA-256 of the response body."""

    is_stream: bool
    status: int
    cost: Cost
    answer_hash: str


class SimulatedUpstream:
    """Answers each prompt of the session with the message that follows it there. served: requests, oldest first."""

    def __init__(self, session: Session, window_tokens: int, count: CountTokens) -> None:
        self.served: list[Served] = []
        self._window_tokens = window_tokens
        self._cache = PromptCache(count)
        self.count = count
        self._counting = Counting(count, make_known())
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
        answer_hash = sha256((response.text or "").encode()).hexdigest()
        self.served.append(Served(is_stream, response.status, cost, answer_hash))
        return response

    def _judge(self, cost: Cost, body: bytes) -> web.Response | None:
        conversation = CHAT.decode(CHAT.read(body), self._counting)
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
    fields: list[_Json] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    reason = "tool_calls" if calls else "stop"
    fields.append({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": reason}]})
    fields.append({"choices": [], "usage": usage})
    events = [orjson.dumps({**_FRAME, "object": "chat.completion.chunk", **each}).decode() for each in fields]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])


def _refuse(message: str, code: str | None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}
    return web.json_response({"error": error}, status=400)


WINDOW_TOKENS = 32_000
"""Chosen: the whole session is more than three times as long, so that many requests need compaction."""
RESERVE_TOKENS = 4_000  # room for the completion. Chosen: above every completion of the session.

_RULE = re.compile(r"([a-z_]+);saved=")
_OVERHEAD_MS = re.compile(r"\btrimtab;dur=([\d.]+)")
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
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_demo(keep=keep))


class Exchange(msgspec.Struct, frozen=True):
    original: Cost  # the prompt as the client sent it, with the cached tokens that an unlimited window would have given
    status: int
    answer_hash: str  # SHA-256 of the body that the client got
    rules: frozenset[str]
    overhead_ms: float  # the time that trimtab added


class Replay(msgspec.Struct, frozen=True):
    """What was measured. `served` holds every request that the upstream got, those for summaries included."""

    exchanges: list[Exchange]
    served: list[Served]

    def sum_cost(self, *, is_stream: bool) -> Cost:
        return sum((one.cost for one in self.served if one.is_stream == is_stream and one.status == 200), Cost())


@asynccontextmanager
async def run_stage(
    session: Session, window_tokens: int = WINDOW_TOKENS, *, keeps_text: bool = False
) -> AsyncIterator[tuple[str, SimulatedUpstream]]:
    """Run the simulated upstream and the proxy in front of it until the block is left.

    window_tokens: the upstream's real window. The proxy always assumes WINDOW_TOKENS. Yields the proxy's URL and
    the upstream.
    """
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
    exchanges: list[Exchange] = []
    endless = PromptCache(upstream.count)
    async with aiohttp.ClientSession(f"{url}/", headers={"Content-Type": "application/json"}) as client:
        for turn in turns:
            body = session.request_body(turn)
            original = endless.read(body)
            async with client.post("v1/chat/completions", data=body) as answer:
                answer_hash = hashlib.sha256(await answer.read()).hexdigest()
            rules = frozenset(_RULE.findall(answer.headers.get("x-trimtab-decisions", "")))
            overhead_ms = sum(map(float, _OVERHEAD_MS.findall(answer.headers.get("server-timing", ""))))
            exchanges.append(Exchange(original, answer.status, answer_hash, rules, overhead_ms))
    return Replay(exchanges, upstream.served)


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
        replay = await replay_session(url, upstream, session, turns)
        show_replay(console, replay)
        if keep:
            await _serve_on(console, url)


def show_replay(console: Console, replay: Replay) -> None:
    requests, answered = len(replay.exchanges), {one.answer_hash for one in replay.served if one.is_stream}
    refused = sum(one.original.prompt_tokens > WINDOW_TOKENS for one in replay.exchanges)
    intact = sum(one.answer_hash in answered for one in replay.exchanges)
    rules = Counter(rule for one in replay.exchanges for rule in sorted(one.rules)).most_common()
    overhead_ms = statistics.median(one.overhead_ms for one in replay.exchanges)
    console.print(_write_table(replay, refused))
    console.print(f"\nWithout trimtab the upstream would have refused {refused} of {requests} requests.", style="bold")
    acted = ", ".join(f"{rule} in {times}" for rule, times in rules) or "none"
    console.print(f"Rules that changed requests: {acted}.")
    console.print(
        f"{intact} of {requests} answers reached the client byte for byte as the upstream sent them;"
        f" trimtab added {overhead_ms:.1f} ms to a request (median)."
    )


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
    original = sum((one.original for one in replay.exchanges), Cost(completion_tokens=sent.completion_tokens))
    requests = f"{len(replay.exchanges)}"
    largest = max(one.original.prompt_tokens for one in replay.exchanges)
    still_refused = sum(one.status != 200 for one in replay.exchanges)
    largest_sent = max((one.cost.prompt_tokens for one in replay.served), default=0)
    table.add_row("requests", requests, requests)
    table.add_row("requests refused", f"{refused}", f"{still_refused}")
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
    uncached_tokens = cost.prompt_tokens - cost.cached_tokens
    input_price = uncached_tokens * INPUT_PRICE + cost.cached_tokens * CACHED_INPUT_PRICE
    return input_price + cost.completion_tokens * OUTPUT_PRICE


async def _serve_on(console: Console, url: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console.print(f"\nSee the session on the dashboard: {url}/trimtab/", soft_wrap=True)
    console.print(f"\nexport OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY=demo\n", soft_wrap=True)
    more = f"The model is {MODEL}; the proxy's metrics are at {url}/metrics. Ctrl-C stops both servers."
    console.print(more, soft_wrap=True)
    await stop.wait()
