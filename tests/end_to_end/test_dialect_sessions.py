"""An agent's session several windows long, in each dialect, through the proxy to an upstream that is strict.

Law: the client sees no refusal. Each forwarded body is valid, and contains what it must of the client's.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import post, settle
from support.dialects.agents import CHAT, MESSAGES, NAME, RESPONSES, SPEECHES, Agent, Wire, read_response
from support.dialects.messages_validity import blocks_of
from support.model_learning import ListLog
from upstreams.recording import Recorded, error
from upstreams.scripted import Call, Turn
from upstreams.strict import BYTES_PER_TOKEN, StrictModel

from trimtab.proxy.server.app import Proxy

STEPS = 35
WINDOW = 16_000
"""In the tokens of the upstream."""
WINDOWS = 3
"""The session is at least this many windows long."""
WORDS = tuple(
    "the harbour depth of water pilot sounded at low tide metres keel clearance draught anchor buoy channel current "  # noqa: SIM905 - a list would be one long line
    "wind from north east south west mooring line quay berth crane cargo manifest lighter tug fog signal lamp".split()
)
SETTINGS = (
    f"defaults.context_window={WINDOW}",
    "defaults.completion_reserve=4000",
    "defaults.max_tool_result_tokens=2000",
)
"""A cut may wait until the room is nearly full. By our count, which is lower than theirs, that is early enough."""
EARLY = ("defaults.completion_reserve=2000", "defaults.high_water=0.4", "defaults.low_water=0.2")
"""For thoughts that cannot be read: the upstream counts about twice as much of these as we do."""
RESULT_WORDS = 500
LONG_WORDS = 2600
"""Words of a result that is truncated."""

each_speech = pytest.mark.parametrize("speech", SPEECHES, ids=str)
each_form = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def make_script(steps: int = STEPS, *, thinks: bool = False) -> list[Turn]:
    """Mostly one call; each fourth turn has three; each ninth has none, and the user must speak."""
    turns = []
    for step in range(steps):
        count = 0 if step % 9 == 8 else 3 if step % 4 == 3 else 1
        calls = tuple(Call(NAME, {"path": f"logs/day_{step}_{rank}.md"}) for rank in range(count))
        text = f"I read the logs of day {step}." if calls else f"The logs up to day {step} are read."
        turns.append(Turn(text, calls, f"Day {step} may tell why the clearance is wrong." if thinks else ""))
    return [*turns, Turn("Everything is read.")]


def write_result(name: str) -> str:
    """The contents of a file: the same for the same name."""
    random = Random(name)  # noqa: S311 - not for security
    count = LONG_WORDS if random.random() < 0.05 else RESULT_WORDS
    lines = (" ".join(random.choices(WORDS, k=10)) for _ in range(count // 10))
    return f"{name}\n" + "\n".join(f"{number}: {line}" for number, line in enumerate(lines))


@dataclass
class Session:
    """An agent that talks through the proxy to the strict model.

    problems: of all forwarded bodies.
    sent: the requests that the upstream got from the client.
    outcomes: the value of `x-trimtab-outcome` for each request.
    original: the body that the client sent last.
    """

    proxy: Proxy
    client: aiohttp.ClientSession
    model: StrictModel
    agent: Agent
    problems: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    sent: list[Recorded] = field(default_factory=list)
    original: bytes = b""
    fails_summaries: bool = False

    async def receive(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        """The upstream's answer. The body is checked first."""
        if recorded.asks_for_summary and self.fails_summaries:
            return error(500, message="overloaded")
        if not recorded.asks_for_summary and recorded.path.endswith(self.agent.speech.path):
            self.sent.append(recorded)
            self.problems += self.agent.speech.check(self.original, recorded.body)
        return await self.model.answer(recorded, request)

    async def finish(self, *, stream: bool) -> None:
        """Play all turns of the model's script. The client does what it is told, and says more if nothing is left."""
        self.agent.say("Read all logs of the harbour, and tell why the clearance is wrong.")
        while self.model.played < len(self.model.turns):
            await self.play(stream=stream)

    async def play(self, *, stream: bool) -> bytes:
        """One turn. Returns the upstream's answer."""
        turn = self.model.turns[self.model.played]
        self.agent.more["stream"] = stream
        self.original = self.agent.write()
        path, headers = self.agent.speech.path, self.agent.speech.headers
        response, answer = await post(self.client, self.proxy.url + path, self.original, **headers)
        assert response.status == 200, answer
        self.outcomes.append(response.headers["x-trimtab-outcome"])
        calls = self.agent.hear(answer, is_stream=stream)
        assert len(calls) == len(turn.calls)
        assert turn.text in orjson.dumps(self.agent.elements[-len(calls) - 1 :]).decode()
        if calls:
            self.agent.answer({one: write_result(str(call)) for one, call in zip(calls, turn.calls, strict=True)})
        else:
            self.agent.say(f"Go on behind what you have read: {write_result(turn.text)[:200]}")
        await settle(self.proxy)
        return answer

    def check(self) -> None:
        """The session is over, nothing that the upstream got was invalid, and the transcript was long."""
        assert self.problems == []
        assert self.model.invalid == []
        assert self.model.played == len(self.model.turns)
        assert len(self.original) / BYTES_PER_TOKEN > WINDOWS * WINDOW


OpenSession = Callable[..., Awaitable[Session]]


@pytest.fixture
def open_session(start_proxy, client, upstream) -> OpenSession:
    """A function that starts a proxy with settings, and a session through it."""

    async def open_one(agent: Agent, *settings: str, model: StrictModel | None = None) -> Session:
        proxy = await start_proxy(*settings)
        model = model or StrictModel(make_script(thinks=agent.thinks), WINDOW)
        session = Session(proxy, client, model, agent)
        upstream.answer = session.receive
        return session

    return open_one


def rules_of(log: ListLog) -> set[str]:
    """The rules that acted in any request."""
    return {decision["rule"] for line in log.lines for decision in line.get("decisions") or ()}


@pytest.mark.parametrize(("speech", "stream"), [(CHAT, False), (RESPONSES, True), (MESSAGES, True)], ids=str)
async def test_with_summaries_of_the_upstream(speech, stream, open_session, log):
    """Summaries are asked for in the dialect. If the question follows the conversation, most of it is cached."""
    session = await open_session(Agent(speech), *SETTINGS)
    await session.finish(stream=stream)

    session.check()
    assert session.model.refused == []
    assert {"summarise", "truncate"} <= rules_of(log)
    behind = [
        spent
        for asked, spent in zip(session.model.accepted, session.model.spent, strict=True)
        if asked.asks_for_summary and asked.json.get("tools")
    ]
    assert behind
    assert all(spent.cached > spent.prompt / 2 for spent in behind)


@each_speech
async def test_with_digests(speech, open_session, log):
    """The upstream fails to write any summary, so a digest takes the place of each."""
    session = await open_session(Agent(speech), *SETTINGS)
    session.fails_summaries = True
    await session.finish(stream=False)

    session.check()
    assert session.model.refused == []
    assert "digest" in rules_of(log)


@pytest.mark.parametrize("speech", [RESPONSES, MESSAGES], ids=str)
async def test_with_thoughts_that_only_the_provider_can_read(speech, open_session, log):
    """Reasoning items and signed thinking come back unchanged, beside what they precede. Some are cut with it."""
    session = await open_session(Agent(speech, thinks=True), *SETTINGS, *EARLY)
    await session.finish(stream=True)

    session.check()
    assert session.model.refused == []
    assert "summarise" in rules_of(log)
    thought = b'"encrypted_content":' if speech is RESPONSES else b'"signature":'
    thoughts = [item.body.count(thought) for item in session.sent]
    assert 0 < thoughts[-1] < max(thoughts)


@pytest.mark.parametrize(("speech", "stream"), [(CHAT, True), (RESPONSES, True), (MESSAGES, False)], ids=str)
async def test_in_a_window_that_nobody_told(speech, stream, open_session):
    """The upstream refuses a prompt for its length, and a stream after it has begun. The client never sees it."""
    model = StrictModel(make_script(), WINDOW, is_late=stream)
    session = await open_session(Agent(speech), "defaults.completion_reserve=2000", model=model)
    await session.finish(stream=stream)

    session.check()
    assert 0 < len(model.refused) < 5


async def test_with_a_compaction_of_the_provider(open_session, log):
    """A client of Responses has its input compacted, and goes on. All up to there stays. What follows is cut."""
    model = StrictModel(make_script(STEPS + STEPS // 3, thinks=True), WINDOW)
    session = await open_session(Agent(RESPONSES, thinks=True), *SETTINGS, model=model)
    agent = session.agent
    agent.say("Read all logs of the harbour.")
    for _ in range(STEPS // 3):
        await session.play(stream=True)
    whole = {"model": "m", "instructions": agent.system, "input": agent.elements[:-1]}
    _, answer = await post(session.client, session.proxy.url + "/v1/responses/compact", whole)
    agent.elements = [*orjson.loads(answer)["output"], *agent.elements[-1:]]
    await session.finish(stream=True)

    session.check()
    assert {line["outcome"] for line in log.lines if line["event"] == "request"} >= {"passed", "compacted"}
    sent = session.sent[-1].json["input"]
    stop = [item.get("type") for item in sent].index("compaction") + 1
    assert sent[:stop] == agent.elements[:stop]
    assert len(sent) < len(agent.elements) / 2


def mark(body: Wire) -> Wire:
    """Mark the system prompt and the last two user messages for the cache, as Claude Code does."""
    users = [rank for rank, message in enumerate(body["messages"]) if message["role"] == "user"][-2:]
    messages = [mark_last(one) if rank in users else one for rank, one in enumerate(body["messages"])]
    system = [{**body["system"][0], "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    return {**body, "system": system, "messages": messages}


def mark_last(message: Wire) -> Wire:
    """Mark the last block of a message."""
    *blocks, last = blocks_of(message)
    return {**message, "content": [*blocks, {**last, "cache_control": {"type": "ephemeral"}}]}


@each_form
async def test_with_cache_markers_of_the_client(stream, open_session, log):
    """They move with the newest messages, and a summary gets one of its own. The streamed session also thinks."""
    session = await open_session(Agent(MESSAGES, thinks=stream, change=mark), *SETTINGS)
    await session.finish(stream=stream)

    session.check()
    assert session.model.refused == []
    assert "summarise" in rules_of(log)
    summarised = [item.json["messages"][0] for item in session.sent if b"SUMMARY: what was read" in item.body]
    assert summarised
    assert all("cache_control" in blocks_of(first)[-1] for first in summarised)


@each_form
async def test_with_a_history_that_the_provider_holds(stream, open_session, log):
    """Only new items are sent. Long results among them are shortened; no item is dropped, and a header says why."""
    model = StrictModel(make_script(thinks=True))
    session = await open_session(Agent(RESPONSES, thinks=True, more={"store": True}), *SETTINGS, model=model)
    agent = session.agent
    agent.say("Read all logs of the harbour.")
    while model.played < len(model.turns):
        heard = len(agent.elements)
        answer = await session.play(stream=stream)
        response = read_response(answer, is_stream=stream)
        agent.more["previous_response_id"] = response["id"]
        del agent.elements[: heard + len(response["output"])]

    assert (session.problems, model.invalid) == ([], [])
    assert all(outcome.endswith(";history=upstream") for outcome in session.outcomes[1:])
    assert rules_of(log) == {"truncate"}
    assert len(model.stored) == len(model.turns)
