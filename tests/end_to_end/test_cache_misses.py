"""Misses of the upstream's prompt cache, each provoked for real: through the proxy, in each dialect, whole or streamed.

The upstream has a cache of prefixes that a test can empty, and a test moves the proxy's clock. No test waits.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect, Wire
from support.model_learning import ListLog
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream
from upstreams.scripted import Turn
from upstreams.strict import StrictModel

from trimtab.proxy.exchange import answer
from trimtab.proxy.server.app import Proxy

VERSION = {"anthropic-version": "2023-06-01"}
LIFETIME_SECONDS = 300.0

each_form = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@dataclass
class Clock:
    """The proxy's clock."""

    seconds: float = 1e9

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Talk:
    """A client that talks with the strict model through the proxy.

    lines: the log line of each request.
    """

    client: aiohttp.ClientSession
    proxy: Proxy
    dialect: Dialect
    stream: bool
    model: StrictModel
    log: ListLog
    clock: Clock = field(default_factory=Clock)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.proxy.services.previous.clock = self.clock

    def write(self, messages: list[Wire], tools: list[Wire]) -> Wire:
        """The body of a request. Messages get a cache marker, without which their cache does nothing."""
        more: Wire = {"stream": self.stream}
        if self.dialect.name == "chat" and self.stream:
            more["stream_options"] = {"include_usage": True}
        if self.dialect.name == "messages":
            more["cache_control"] = {"type": "ephemeral"}
        return self.dialect.write(messages, tools, max_tokens=500, **more)

    async def ask(self, messages: list[Wire], tools: list[Wire]) -> dict[str, Any]:
        """Send a request a second after the previous one; return its log line."""
        self.clock.seconds += 1.0
        url = self.proxy.url + self.dialect.path
        response, said = await post(self.client, url, self.write(messages, tools), **VERSION)
        assert response.status == 200, said
        await settle(self.proxy)
        line = [line for line in self.log.lines if line["event"] == "request"][-1]
        self.lines.append(line)
        return line

    def forget(self) -> None:
        """Empty the upstream's cache."""
        self.model._read.clear()

    async def count(self, name: str, label: str = "model") -> dict[str, float]:
        """The samples of a metric, by the value of one of its labels."""
        page = (await (await self.client.get(self.proxy.url + "/metrics")).text()).splitlines()
        lines = [line for line in page if line.startswith(name + "{")]
        return {line.partition(f'{label}="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.fixture
def talk(client, upstream: FakeUpstream, start_proxy, log, monkeypatch):
    """Starts a proxy and a client of it. The upstream counts as hosted, so its cache has a lifetime."""

    async def begin(dialect: Dialect, *settings: str, stream: bool = False) -> Talk:
        monkeypatch.setattr(answer, "find_lifetime", lambda *_: LIFETIME_SECONDS)
        model = StrictModel([Turn("I go on.")] * 200)
        upstream.answer = model.answer
        proxy = await start_proxy("defaults.max_tool_result_tokens=2000", *settings)
        return Talk(client, proxy, dialect, stream, model, log)

    return begin


SESSION = make_session(12)
TRANSCRIPTS = list(requests_of(SESSION))
TOOLS = SESSION["tools"]


@each_dialect
@each_form
async def test_a_session_that_only_grows_misses_once_at_its_beginning(dialect, stream, talk):
    """What the upstream reports is in the log and in the metrics, and its parts add up to the prompt."""
    session = await talk(dialect, stream=stream)
    for messages in TRANSCRIPTS[4:9]:
        await session.ask(messages, TOOLS)

    assert [line.get("cache_miss") for line in session.lines] == ["cold", None, None, None, None]
    for line, spent in zip(session.lines, session.model.spent, strict=True):
        parts = (line["cached_tokens"], line.get("written_tokens", 0), line["fresh_tokens"])
        assert sum(parts) == spent.prompt
        assert parts[0] == pytest.approx(spent.cached, abs=60)  # Messages report the last tokens as fresh
    assert all(line["prefix_kept"] > 0.6 for line in session.lines[1:])
    cached = sum(line["cached_tokens"] for line in session.lines)
    assert await session.count("trimtab_cached_prompt_tokens_total") == {"m": cached}
    written = sum(line.get("written_tokens", 0) for line in session.lines)
    assert await session.count("trimtab_cache_write_tokens_total") == ({"m": written} if written else {})
    assert await session.count("trimtab_cache_misses_total", "cause") == {"cold": 1.0}


@each_dialect
@pytest.mark.parametrize(("strategy", "stream"), [("prune", True), ("summarize", False)])
async def test_trimtabs_own_cuts_are_blamed_on_it(strategy, dialect, stream, talk):
    """A cut misses the cache once; the requests between two cuts read from it."""
    long = make_session(40, result_words=200)
    session = await talk(dialect, *SMALL, f"defaults.overflow_strategy={strategy}", stream=stream)
    for messages in list(requests_of(long))[3:]:
        await session.ask(messages, long["tools"])

    causes = Counter(line.get("cache_miss") for line in session.lines[1:])
    moved = [line for line in session.lines[1:] if line["prefix_kept"] < 0.6]
    assert causes["cut"] >= 1
    assert set(causes) == {None, "cut"}
    assert {line.get("cache_miss") for line in moved} == {"cut"}
    assert causes["cut"] < len(session.lines) / 3
