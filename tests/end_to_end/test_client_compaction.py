"""A client asks for a summary of its own conversation at the end of an agent's session, in each dialect."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import orjson
import pytest
from support.client import post, settle
from support.client_words import AFTER_CONVERSATION, IN_USER, Words
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses

Wire = dict[str, Any]

TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
SETTINGS = (
    "defaults.context_window=20000",
    "defaults.completion_reserve=4096",
    "defaults.max_tool_result_tokens=1000",
    "defaults.high_water=0.8",
    "defaults.low_water=0.4",
)
"""The limit is 15,904 tokens in each dialect, and high water is at about 12,000."""
WORDS = "the harbour pilot sounded nine metres of water at low tide near the north quay and wrote it down"


def to_chat(session: Wire) -> Wire:
    """The body of a chat completion."""
    return {"model": "m", **session}


DIALECTS: dict[str, tuple[str, str, Callable[[Wire], Wire]]] = {
    "chat": ("/v1/chat/completions", "messages", to_chat),
    "responses": ("/v1/responses", "input", to_responses),
    "messages": ("/v1/messages", "messages", to_messages),
}
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def name_form(value: Words | str) -> str:
    """The id of a request's form, or of its dialect."""
    return value if isinstance(value, str) else f"{value.client}: {value.sample[:20]}"


def write_result(name: str, lines: int) -> str:
    """A file's text of about 25 tokens a line; each file is another."""
    return "\n".join(f"{name}, line {line}: {WORDS}" for line in range(lines))


def read_files(step: int, *lines: int, said: int = 0) -> list[Wire]:
    """A step of the agent: it reads several files at once, after `said` lines of text."""
    ids = [f"call_{step}_{rank}" for rank in range(len(lines))]
    calls = [
        {"id": one, "type": "function", "function": {"name": "read_file", "arguments": f'{{"path":"{one}"}}'}}
        for one in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": one, "content": write_result(one, size)}
        for one, size in zip(ids, lines, strict=True)
    ]
    text = f"I read the logs of day {step}.\n{write_result('thought', said)}"
    return [{"role": "assistant", "content": text, "tool_calls": calls}, *results]


def make_session(steps: int, *more: Wire, system: str = "You are a coding agent.", said: int = 0) -> Wire:
    """A session of `steps` files with about 800 tokens each, and messages after them."""
    begun: list[Wire] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "Read all logs of the harbour."},
    ]
    read = [message for step in range(steps) for message in read_files(step, 30, said=said)]
    return {"messages": [*begun, *read, *more], "tools": TOOLS}


def say(text: str) -> Wire:
    """A message of the user."""
    return {"role": "user", "content": text}


def write(dialect: str, session: Wire) -> tuple[str, bytes]:
    """The path and the body of a request. The body has spaces, as no JSON library of ours writes it."""
    path, _, convert = DIALECTS[dialect]
    return path, orjson.dumps(convert(session), option=orjson.OPT_INDENT_2)


ASK = say(IN_USER[0].sample)
OVER_HIGH_WATER = read_files(90, *[36] * 6)
"""A step of about 6,000 tokens. After seven of the others, the session is over high water and within the limit."""


@pytest.mark.parametrize(("form", "dialect"), list(zip(IN_USER, cycle(DIALECTS), strict=False)), ids=name_form)
async def test_each_clients_request_passes_byte_for_byte(form, dialect, client, upstream, start_proxy) -> None:
    """It is over high water and within the window. No summary of ours is written for it, and the outcome says why."""
    proxy = await start_proxy(*SETTINGS)
    path, body = write(dialect, make_session(7, *OVER_HIGH_WATER, say(form.sample)))

    answer, _ = await post(client, proxy.url + path, body)
    await settle(proxy)

    assert [recorded.body for recorded in upstream.requests] == [body]
    assert answer.headers["x-trimtab-outcome"] == "unchanged;compaction=client"
    assert "x-trimtab-decisions" not in answer.headers


@pytest.mark.parametrize(
    ("form", "dialect"), list(zip(AFTER_CONVERSATION, cycle(DIALECTS), strict=False)), ids=name_form
)
async def test_a_conversation_written_as_one_text_passes(form, dialect, client, upstream, start_proxy) -> None:
    """Pi and opencode write the whole conversation into one message, and the request after it."""
    proxy = await start_proxy(*SETTINGS)
    text = f"<conversation>\n{write_result('said', 480)}\n</conversation>\n\n{form.sample}"
    path, body = write(dialect, {"messages": [say(text)]})

    answer, _ = await post(client, proxy.url + path, body)

    assert [recorded.body for recorded in upstream.requests] == [body]
    assert answer.headers["x-trimtab-outcome"] == "unchanged;compaction=client"


@each_dialect
@pytest.mark.parametrize(("said", "rule"), [(0, "prune"), (20, "summarise")])
async def test_after_a_cut_it_goes_like_any_request(said, rule, dialect, client, upstream, start_proxy) -> None:
    """It begins with what was forwarded before, so the upstream's prompt cache finds it."""
    proxy = await start_proxy(*SETTINGS)
    session = make_session(17, say("Go on."), said=said)  # pruned once: the second time, a summary is written
    path, before = write(dialect, session)
    await post(client, proxy.url + path, before)
    await settle(proxy)
    await post(client, proxy.url + path, before)  # now the summary is written, and the cut is made
    session["messages"] += [{"role": "assistant", "content": "The logs are read."}, ASK]
    _, asking = write(dialect, session)

    answer, _ = await post(client, proxy.url + path, asking)

    assert answer.headers["x-trimtab-outcome"] == "compacted"
    member = DIALECTS[dialect][1]
    elements, asked = (recorded.json[member] for recorded in upstream.chats[-2:])
    assert rule in answer.headers["x-trimtab-decisions"]
    assert asked[: len(elements)] == elements
    assert asked[-1] == orjson.loads(asking)[member][-1]


TOLD = "Another language model started to solve this problem and produced a summary of its thinking process. Key: K-17."
GOAL = "## Goal\nFind the key K-17.\n## Instructions\nBe quick.\n## Discoveries\nNone.\n## Accomplished\nLittle."
BEGINNINGS = {
    "codex": (TOLD, [say("Find the key."), say(TOLD)]),
    "opencode": (GOAL, [say("What did we do so far?"), {"role": "assistant", "content": GOAL}, say("Go on.")]),
}


@pytest.mark.parametrize(
    ("client_name", "said", "dialect"),
    [("codex", 0, "responses"), ("codex", 20, "chat"), ("opencode", 0, "chat"), ("opencode", 20, "messages")],
)
async def test_a_clients_own_summary_stays(client_name, said, dialect, client, upstream, start_proxy) -> None:
    """It is forwarded once and verbatim behind every cut. No question for our summary holds it twice."""
    proxy = await start_proxy(*SETTINGS, "defaults.overflow_strategy=summarize")
    told, begun = BEGINNINGS[client_name]
    session = {"messages": [{"role": "system", "content": "You are a coding agent."}, *begun], "tools": TOOLS}
    cuts = set[str]()
    written = orjson.dumps(told)[1:-1]
    for step in range(40):
        path, body = write(dialect, session)
        answer, _ = await post(client, proxy.url + path, body)
        assert answer.status == 200
        cuts.add(answer.headers.get("x-trimtab-decisions", ""))
        assert upstream.chats[-1].body.count(written) == 1
        session["messages"] += read_files(step, 20, said=said)
        await settle(proxy)
    assert any("summarise" in cut for cut in cuts)
    assert len(upstream.summaries) > 1
    assert {recorded.body.count(written) for recorded in upstream.summaries} <= {0, 1}
    assert all(b"K-17" in recorded.body for recorded in upstream.summaries)
