"""The name of a request's session, and what a client says about its own compaction."""

from functools import partial
from typing import Any

import orjson
import pytest
from support.client import SMALL, post, settle
from support.events import read_events
from support.journeys import arrive

from trimtab.proxy.account.history.sessions import find_named
from trimtab.proxy.account.sessions import CLASS, COMPACTION, tells_compaction
from trimtab.proxy.server.app import Proxy
from trimtab.proxy.wire.chat import codec as chat
from trimtab.proxy.wire.messages import codec as messages

SESSION, AGENT = "x-claude-code-session-id", "x-claude-code-agent-id"
HELLO = [{"role": "user", "content": "hello"}]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
LEAK = "mail@example.com of the user"


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]


async def name(client: Any, proxy: Proxy, body: dict[str, Any], path: str = CHAT, **headers: str) -> str:
    """The name of a request's session, as the history has it."""
    response, answer = await post(client, proxy.url + path, {"model": "m", "max_tokens": 9, **body}, **headers)
    assert response.status == 200, answer
    await proxy.services.lifecycle.idle.wait()
    event = (await read_events(proxy.services.past))[-1]
    assert len(event.session) == 16
    return event.session


@pytest.mark.parametrize("header", [SESSION, "session_id", "X-Session-Id"])
async def test_what_a_client_says_in_a_header_tells_sessions_apart(header: str, client, start_proxy) -> None:
    proxy = await start_proxy()
    first, second = ({header: one} for one in ("one", "two"))
    mine = await name(client, proxy, {"messages": HELLO}, **first)
    other = await name(client, proxy, {"messages": HELLO}, **second)
    assert mine != other != await name(client, proxy, {"messages": HELLO})
    assert await name(client, proxy, {"messages": said("hello", "No", "go on")}, **first) == mine


async def test_side_calls_share_an_id(client, start_proxy) -> None:
    proxy = await start_proxy()
    own = {SESSION: "one"}
    names = [
        await name(client, proxy, {"messages": messages}, **own, **more)
        for messages in (HELLO, said("title this"))
        for more in ({}, {AGENT: "a"}, {AGENT: "b"}, {CLASS: "auxiliary"})
    ]
    assert len(set(names)) == len(names)
    assert await name(client, proxy, {"messages": HELLO}, **own, **{CLASS: "main"}) == names[0]
    assert (
        await name(client, proxy, {"messages": HELLO}, **own, **{CLASS: "compaction", COMPACTION: "auto"}) == names[0]
    )


@pytest.mark.parametrize(
    ("path", "member", "values"),
    [
        (CHAT, "prompt_cache_key", ("one", "two")),
        (RESPONSES, "prompt_cache_key", ("one", "two")),
        (MESSAGES, "metadata", ({"user_id": "session_one"}, {"user_id": "session_two"})),
        (RESPONSES, "conversation", ({"id": "conv_1"}, {"id": "conv_2"})),
    ],
)
async def test_what_a_client_says_in_its_body_tells_sessions_apart(
    path: str, member: str, values: tuple[Any, Any], client, start_proxy
) -> None:
    proxy = await start_proxy()
    transcript = "input" if path == RESPONSES else "messages"
    names = [await name(client, proxy, {transcript: HELLO, member: value}, path) for value in (*values, *values)]
    assert names[:2] == names[2:]
    assert names[0] != names[1] != await name(client, proxy, {transcript: HELLO}, path)


async def test_the_configuration_says_where_to_look(client, start_proxy) -> None:
    proxy = await start_proxy('sessions.headers=["X-My-Session"]', 'sessions.fields=["extra.chat"]')
    plain = await name(client, proxy, {"messages": HELLO})
    assert await name(client, proxy, {"messages": HELLO, "prompt_cache_key": "k"}, **{SESSION: "one"}) == plain
    assert await name(client, proxy, {"messages": HELLO}, **{"x-my-session": "one"}) != plain
    assert await name(client, proxy, {"messages": HELLO, "extra": {"chat": 7}}) != plain


async def test_an_odd_value_says_nothing(client, start_proxy) -> None:
    proxy = await start_proxy()
    odd = [{"prompt_cache_key": value} for value in (None, ["a"], "k" * 20_000)]
    odd += [{"metadata": value} for value in ("no object", {"user_id": {"id": "x"}}, {"user_id": True})]
    assert len({await name(client, proxy, {"messages": HELLO, **body}) for body in ({}, *odd)}) == 1


async def test_nothing_that_the_client_says_is_kept(client, start_proxy, log) -> None:
    proxy = await start_proxy()
    await name(client, proxy, {"messages": HELLO, "prompt_cache_key": LEAK, "metadata": {"user_id": LEAK}})
    await name(client, proxy, {"messages": HELLO}, **{SESSION: LEAK, AGENT: LEAK})
    await settle(proxy)
    assert LEAK not in str(log.lines)
    assert LEAK not in str(await read_events(proxy.services.past))


def test_claude_code_says_what_a_request_is_for() -> None:
    """The words are those of its gateway protocol. Others say nothing."""
    for headers, tells in (
        ({}, None),
        ({CLASS: "Auxiliary "}, False),
        ({CLASS: "compaction"}, True),
        ({CLASS: "of a later version"}, None),
        ({COMPACTION: "reactive", CLASS: "subagent"}, True),
        ({COMPACTION: ""}, None),
        ({COMPACTION: "0"}, None),
        ({COMPACTION: "False", CLASS: "main"}, False),
        ({COMPACTION.upper(): "manual"}, True),
    ):
        assert tells_compaction(arrive(**headers).named, chat.CHAT.read(b'{"messages":[]}')) is tells


def test_a_request_for_anthropics_compaction_is_the_clients_own() -> None:
    """As it goes on with the session, its whole body counts, wherever the member is."""
    said = [{"role": "user", "content": '"compaction":{"type":"summarize"}'}]
    for betas, compaction, tells in (
        ("a,compact-2026-09-04", {"type": "summarize"}, True),
        ("a", {"type": "summarize"}, None),
        ("compact-2026-09-04", {"type": "of a later version"}, None),
        ("compact-2026-09-04", None, None),
    ):
        request = messages.MESSAGES.read(orjson.dumps({"messages": said, "compaction": compaction}))
        assert tells_compaction(arrive(**{"anthropic-beta": betas}).named, request) is tells


async def test_a_request_that_the_client_names_as_its_compaction_passes(client, upstream, start_proxy) -> None:
    proxy = await start_proxy("defaults.max_tool_result_tokens=500")
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "x", "content": "\n".join(f"line {at}" for at in range(2000))}
    told = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    outcomes = []
    for headers in ({}, {COMPACTION: "manual"}, {CLASS: "compaction"}, {CLASS: "main"}):
        body = {"model": "m", "messages": [*told, *said("Done", "Write down all that matters.")[1:]]}
        response, _ = await post(client, proxy.url + CHAT, body, **headers)
        outcomes.append((response.headers["x-trimtab-outcome"], upstream.chats[-1].json == body))
    passed = ("unchanged;compaction=client", True)
    assert outcomes == [("compacted", False), passed, passed, ("compacted", False)]


async def test_a_begun_answer_is_no_message_of_the_session(client, start_proxy) -> None:
    proxy, begun = await start_proxy(), {"role": "assistant", "content": "{"}
    texts = ["hello", '{"a": 1}', "go on", '{"b": 2}', "and on"]
    mine = {await name(client, proxy, {"messages": [*said(*texts[:stop]), begun]}) for stop in (1, 3, 5)}
    assert len(mine) == 1
    other = [*said("hello", '{"z": 1}', "go on"), begun]
    assert await name(client, proxy, {"messages": other}) not in mine


async def test_what_was_not_answered_may_be_written_otherwise(client, start_proxy) -> None:
    """The client has taken its last message back, and the session has gone on from the answer before it."""
    proxy = await start_proxy()
    first = await name(client, proxy, {"messages": said("hello", "Yes", "go on")})
    told = said("hello", "Yes", "wait", "Fine", "more", "Done", "and more")
    assert await name(client, proxy, {"messages": told}) == first


async def test_what_is_forwarded_does_not_depend_on_it(client, upstream, start_proxy) -> None:
    """The same bytes with an id as without, whatever came before."""
    proxy = await start_proxy("defaults.context_window=4000", "defaults.completion_reserve=500")
    body = {"messages": said("hello", *(f"{at} {'word ' * 200}" for at in range(30)))}
    sent = []
    for headers in ({}, {SESSION: "one"}, {SESSION: "two"}, {}):
        await name(client, proxy, body, **headers)
        await settle(proxy)
        sent.append(upstream.chats[-1].body)
    assert sent[1] == sent[2] == sent[3]


async def test_a_summary_is_paid_by_the_session_that_it_is_for(client, upstream, start_proxy) -> None:
    proxy = await start_proxy(*SMALL, 'prices={"input": 1, "cached_input": 1, "output": 1, "unit": "usd"}')
    paid = []
    for letter in "ab":
        texts = ["hello", *(f"{letter} {at} {'word ' * 150}" for at in range(60))]
        found = {await name(client, proxy, {"messages": said(*texts[:stop])}) for stop in (1, 21, 41, 61)}
        await settle(proxy)
        assert len(found) == 1
        session = await proxy.services.past.read(partial(find_named, name=found.pop()))
        paid.append(session.summary_cost)
    assert upstream.summaries
    assert min(paid) > 0
