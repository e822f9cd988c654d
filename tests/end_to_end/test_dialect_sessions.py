"""An agent's session several windows long, in each dialect, through the proxy to an upstream that is strict.

Law: the client sees no refusal. Each forwarded body is valid, and contains what it must of the client's.
"""

import orjson
import pytest
from support.client import post
from support.dialects.agent_session import AgentSession, make_script
from support.dialects.agents import CHAT, MESSAGES, RESPONSES, Agent, Wire
from support.dialects.messages_validity import blocks_of
from support.model_learning import ListLog
from upstreams.strict import BYTES_PER_TOKEN, StrictModel

from trimtab.proxy.exchange import answer

STEPS = 28
WINDOW = 16_000
"""In the tokens of the upstream."""
WINDOWS = 3
"""The session is at least this many windows long."""
SETTINGS = (
    f"defaults.context_window={WINDOW}",
    "defaults.completion_reserve=4000",
    "defaults.max_tool_result_tokens=2000",
)
"""A cut may wait until the room is nearly full. By our count, which is lower than theirs, that is early enough."""


def check(session: AgentSession) -> None:
    """The session is over, everything that the upstream got was valid, and the transcript was long."""
    assert session.model.invalid == []
    for original, recorded in session.sent:
        assert session.agent.speech.check(original, recorded.body) == []
    assert session.model.played == len(session.model.turns)
    assert len(session.original) / BYTES_PER_TOKEN > WINDOWS * WINDOW


def rules_of(log: ListLog) -> set[str]:
    """The rules that acted in any request."""
    return {decision["rule"] for line in log.lines for decision in line.get("decisions") or ()}


@pytest.mark.parametrize(("speech", "stream"), [(CHAT, False), (RESPONSES, True), (MESSAGES, True)], ids=str)
async def test_with_summaries_of_the_upstream(speech, stream, open_session, start_proxy, log, monkeypatch):
    """Summaries are asked for in the dialect. If the question follows the conversation, most of it is cached.

    No request misses the cache of a growing session, but where a cut has moved, and that is said of it.
    """
    monkeypatch.setattr(answer, "find_lifetime", lambda *_: 300.0)  # as of a provider's cache
    session = open_session(await start_proxy(*SETTINGS), StrictModel(make_script(STEPS), WINDOW), Agent(speech))
    await session.finish(stream=stream)

    check(session)
    assert session.model.refused == []
    assert {"summarise", "truncate"} <= rules_of(log)
    asked = zip(session.model.accepted, session.model.spent, strict=True)
    behind = [spent for asked, spent in asked if asked.asks_for_summary and asked.json.get("tools")]
    assert behind
    assert all(spent.cached > spent.prompt / 2 for spent in behind)
    if speech is not MESSAGES:  # which has no cache without markers
        lines = [line for line in log.lines if line["event"] == "request"][1:]
        assert {line.get("cache_miss") for line in lines} == {None, "cut"}
        assert all(line["prefix_kept"] < 0.2 for line in lines if "cache_miss" in line)
        assert sum("cache_miss" in line for line in lines) < len(lines) / 3


@pytest.mark.parametrize(("speech", "stream"), [(CHAT, True), (RESPONSES, True), (MESSAGES, False)], ids=str)
async def test_in_a_window_that_nobody_told(speech, stream, open_session, start_proxy):
    """The upstream refuses a prompt for its length, and a stream after it has begun. The client never sees it."""
    model = StrictModel(make_script(STEPS), WINDOW, is_late=stream)
    session = open_session(await start_proxy("defaults.completion_reserve=2000"), model, Agent(speech))
    await session.finish(stream=stream)

    check(session)
    assert 0 < len(model.refused) < 5


async def test_with_a_compaction_of_the_provider(open_session, start_proxy, log):
    """A client of Responses has its input compacted, and goes on. All up to there stays. What follows is cut."""
    model = StrictModel(make_script(STEPS + STEPS // 3, thinks=True), WINDOW)
    session = open_session(await start_proxy(*SETTINGS), model, Agent(RESPONSES, thinks=True))
    agent = session.agent
    for _ in range(STEPS // 3):
        await session.play(stream=True)
    whole = {"model": "m", "instructions": agent.system, "input": agent.elements[:-1]}
    _, answered = await post(session.client, session.proxy.url + "/v1/responses/compact", whole)
    agent.elements = [*orjson.loads(answered)["output"], *agent.elements[-1:]]
    await session.finish(stream=True)

    check(session)
    assert {line["outcome"] for line in log.lines if line["event"] == "request"} >= {"passed", "compacted"}
    sent = session.sent[-1][1].json["input"]
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


async def test_with_cache_markers_of_the_client(open_session, start_proxy, log):
    """They move with the newest messages, and a summary gets one of its own. Signed thinking comes back unchanged."""
    agent = Agent(MESSAGES, thinks=True, change=mark)
    session = open_session(await start_proxy(*SETTINGS), StrictModel(make_script(STEPS, thinks=True), WINDOW), agent)
    await session.finish(stream=True)

    check(session)
    assert session.model.refused == []
    assert "summarise" in rules_of(log)
    summarised = [one.json["messages"][0] for _, one in session.sent if b"SUMMARY: what was read" in one.body]
    assert summarised
    assert all("cache_control" in blocks_of(first)[-1] for first in summarised)
