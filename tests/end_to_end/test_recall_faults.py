"""The tool of recall when a client leaves, a request is refused, or the model is hostile.

Law: what was found is not lost, all rounds are booked, and whatever a model asks, the client gets one answer in bounds.
"""

import asyncio
import gzip
from typing import Any

import orjson
import pytest
from aiohttp import web
from end_to_end.test_recall import CUTS, FACT, QUESTION, make_talk, step
from end_to_end.test_recall_tool import (
    ASK,
    FOUND,
    TOOL,
    ask,
    calls_recall,
    find_ids,
    in_turn,
    read_tools,
    script,
    write,
)
from support.client import post, wait_until
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect, read_sse
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from support.events import read_events
from upstreams import scripted
from upstreams.scripted import Call, Turn

LAST_EVENTS = {CHAT.name: b"[DONE]", MESSAGES.name: b'"message_stop"', RESPONSES.name: b'"response.completed"'}
BESIDE = Turn("", (Call("run", {"n": 1}), ASK))


def go_on(session: list[Any], answer: bytes, *, stream: bool) -> list[Any]:
    """The session with the client's calls of an answer, and their results."""
    ids = find_ids(answer, stream=stream)
    calls = [{"id": one, "type": "function", "function": {"name": "run", "arguments": "{}"}} for one in ids]
    results = [{"role": "tool", "tool_call_id": one, "content": f"ran {one}"} for one in ids]
    return [*session, {"role": "assistant", "content": None, "tool_calls": calls}, *results]


async def hold_end(client: Any, upstream: Any, dialect: Dialect, body: Any) -> None:
    """Let the first answer of the model stay open behind its last event."""
    stream, speak = await ask(client, upstream, dialect, body), upstream.answer
    upstream.requests.clear()

    async def answer(recorded: Any, request: Any) -> Any:
        if len(upstream.chats) > 1:
            return await speak(recorded, request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(stream)
        await asyncio.Event().wait()
        return response

    upstream.answer = answer


@each_dialect
async def test_a_client_that_closes_at_the_last_event_loses_nothing(dialect, client, upstream, start_proxy):
    """As the SDKs of OpenAI and Anthropic do, whatever the upstream still has to say."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, BESIDE, FOUND)
    session = [*make_talk(), QUESTION]
    body = write(dialect, session, stream=True)
    await hold_end(client, upstream, dialect, body)
    headers, read = {"Authorization": "Bearer sk-test"}, b""
    async with client.post(proxy.url + dialect.path, data=orjson.dumps(body), headers=headers) as response:
        while LAST_EVENTS[dialect.name] not in read:
            read += await asyncio.wait_for(response.content.readany(), 30)
    assert not calls_recall(dialect, read)
    await ask(client, proxy, dialect, write(dialect, go_on(session, read, stream=True), stream=True))
    assert FACT in dialect.read_results(upstream.chats[-1].json)[-1]


@in_turn
async def test_calls_beside_the_clients_own_in_the_last_round(dialect, stream, client, upstream, start_proxy):
    """They ask for no further round, so they are answered, too."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, *(Turn("Hm. ", (ASK,)) for _ in range(4)), BESIDE, FOUND)
    session = [*make_talk(), QUESTION]
    answer = await ask(client, proxy, dialect, write(dialect, session, stream=stream))
    assert len(upstream.chats) == 5
    await ask(client, proxy, dialect, write(dialect, go_on(session, answer, stream=stream), stream=stream))
    assert FACT in dialect.read_results(upstream.chats[-1].json)[-1]


@each_dialect
async def test_a_request_that_was_refused_keeps_what_was_found(dialect, client, upstream, start_proxy):
    """It is planned again for a smaller window; what was found stands in the second attempt as well."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, BESIDE, FOUND)
    session = [*make_talk(), QUESTION]
    answer = await ask(client, proxy, dialect, write(dialect, session, stream=False))
    speak = upstream.answer

    async def refuse(recorded: Any, request: Any) -> Any:
        if len(upstream.chats) == 2:
            return scripted.refuse(20_000, 9_000)
        return await speak(recorded, request)

    upstream.answer = refuse
    await ask(client, proxy, dialect, write(dialect, go_on(session, answer, stream=False), stream=False))
    assert len(upstream.chats) == 3
    first, second = (dialect.read_results(sent.json)[-1] for sent in upstream.chats[1:])
    assert first == second
    assert FACT in second


@in_turn
async def test_what_is_said_before_a_call_stays(dialect, stream, client, upstream, start_proxy):
    """In a whole answer as in a stream; what the model has thought before it said something, too."""
    proxy = await start_proxy(*TOOL)
    thought = "" if stream and dialect is MESSAGES else "Hm."
    script(upstream, dialect, Turn("Let me look. ", (ASK,), thought=thought), Turn("And again. ", (ASK,)), FOUND)
    answer = await ask(client, proxy, dialect, write(dialect, [*make_talk(), QUESTION], stream=stream))
    assert dialect.read_text(answer, is_stream=stream) == "Let me look. And again. " + FOUND.text
    assert dialect is CHAT or thought.encode() in answer  # chat does not show it


async def find_lines(log: Any, number: int = 1) -> list[dict[str, Any]]:
    await wait_until(lambda: sum(line["event"] == "request" for line in log.lines) == number)
    return [line for line in log.lines if line["event"] == "request"]


@each_dialect
@pytest.mark.parametrize("has_begun", [False, True], ids=["unanswered", "answering"])
async def test_a_round_whose_client_leaves_is_booked(dialect, has_begun, client, upstream, start_proxy, log):
    """Its prompt was sent, so it may be charged; what the model wrote until then has its price."""
    proxy, reached = await start_proxy(*TOOL), asyncio.Event()
    script(upstream, dialect, Turn("Let me look. ", (ASK,)))
    speak = upstream.answer

    async def answer(recorded: Any, request: Any) -> Any:
        if len(upstream.chats) == 1:
            return await speak(recorded, request)
        if has_begun:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for event in dialect.write_events("It is merlin. " * 20)[:-1]:
                await response.write(event)
        reached.set()
        return await asyncio.Event().wait()

    upstream.answer = answer
    body = write(dialect, [*make_talk(), QUESTION], stream=True)
    async with client.post(
        proxy.url + dialect.path, json=body, headers={"Authorization": "Bearer sk-test"}
    ) as answered:
        read = b""
        while (b"merlin" if has_begun else b"look") not in read:
            read += await asyncio.wait_for(answered.content.readany(), 30)
        await asyncio.wait_for(reached.wait(), 30)
    (told,) = await find_lines(log)
    assert (told["outcome"], told["recall_rounds"]) == ("aborted", 1)
    assert told["recall_prompt_tokens"] > (0 if has_begun else 1000)
    assert told["completion_tokens"] >= (40 if has_begun else 7)


@each_dialect
async def test_the_outcome_says_what_was_done(dialect, client, upstream, start_proxy, log):
    """Nothing was compacted if only the tool was declared. Its tokens are in the bill."""
    proxy = await start_proxy(*TOOL)
    body = write(dialect, [QUESTION], stream=False)
    response, _ = await post(client, proxy.url + dialect.path, body)
    assert response.headers["x-trimtab-outcome"] == "recall"
    assert read_tools(upstream.chats[-1].json) == ["trimtab_recall", "run"]
    response, _ = await post(client, proxy.url + dialect.path, write(dialect, [*make_talk(), QUESTION], stream=False))
    assert response.headers["x-trimtab-outcome"] == "compacted"
    first, _ = await find_lines(log, 2)
    assert first["outcome"] == "recall"
    assert first["sent_tokens"] > first["original_tokens"]


LONG_QUERY = Call("trimtab_recall", {"query": "merlin-api database " + "x" * 1_000_000})
MANY = tuple(Call("trimtab_recall", {"query": f"merlin-api {number}"}) for number in range(1000))
ODD = (
    Call("trimtab_recall", {"query": ["merlin-api"]}),
    Call("trimtab_recall", {"query": '" OR NEAR(', "range": [9**18, -1]}),
)


@in_turn
@pytest.mark.parametrize("calls", [(LONG_QUERY,), MANY, ODD], ids=["long", "many", "odd"])
async def test_a_hostile_model_is_answered_in_bounds(dialect, stream, calls, client, upstream, start_proxy):
    """A query of a megabyte, a thousand calls at once, and queries that are none: nothing fails, nothing grows."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, Turn("Hm. ", calls), FOUND)
    answer = await ask(client, proxy, dialect, write(dialect, [*make_talk(), QUESTION], stream=stream))
    assert not calls_recall(dialect, answer)
    assert not find_ids(answer, stream=stream)
    said = dialect.read_text(answer, is_stream=stream)
    assert said == ("Hm. " if calls is MANY else "Hm. " + FOUND.text)
    if calls is not MANY:
        results = dialect.read_results(upstream.chats[-1].json)[-len(calls) :]
        assert all(len(text) < 20_000 for text in results)


async def test_arguments_that_are_no_json_are_not_sent_on(client, upstream, start_proxy):
    """Servers refuse a transcript with them."""
    proxy = await start_proxy(*TOOL)
    call = {"id": "c", "type": "function", "function": {"name": "trimtab_recall", "arguments": '{"query": "mer'}}
    script(upstream, CHAT, FOUND)
    speak = upstream.answer

    async def answer(recorded: Any, request: Any) -> Any:
        if len(upstream.chats) > 1:
            return await speak(recorded, request)
        choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}
        return web.json_response({"id": "x", "choices": [{**choice, "finish_reason": "length"}]})

    upstream.answer = answer
    told = await ask(client, proxy, CHAT, write(CHAT, [*make_talk(), QUESTION], stream=False))
    assert CHAT.read_text(told, is_stream=False) == FOUND.text
    assert upstream.chats[-1].json["messages"][-2]["tool_calls"][0]["function"]["arguments"] == "{}"


@each_dialect
async def test_a_clients_text_is_never_found_by_another(dialect, client, upstream, start_proxy):
    """Also if both have the same transcript and the same calls: what one has found is not shown to the other."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, BESIDE, FOUND)
    session = [*make_talk(), QUESTION]
    answer = await ask(client, proxy, dialect, write(dialect, session, stream=False))
    later = write(dialect, go_on(session, answer, stream=False), stream=False)
    for key, is_shown in (("sk-other", False), ("sk-test", True)):
        headers = {"Authorization": f"Bearer {key}"}
        await post(client, proxy.url + dialect.path, later, **headers)
        assert (FACT in dialect.read_results(upstream.chats[-1].json)[-1]) is is_shown


@pytest.mark.parametrize(
    ("dialect", "recall"),
    [(CHAT, "tool"), (RESPONSES, "inject"), (RESPONSES, "tool"), (MESSAGES, "inject"), (MESSAGES, "tool")],
    ids=str,
)
async def test_the_prefix_stands_over_a_long_session(dialect, recall, client, upstream, start_proxy):
    """The forwarded bytes go on from request to request, but where more is cut."""
    proxy = await start_proxy(*CUTS, f"defaults.recall={recall}", "defaults.context_window=16000")
    session: list[Any] = [{"role": "user", "content": "Mend the build of merlin-api."}]
    before, was_cut, breaks, shown = b"", "", 0, 0
    mark = b"from removed messages" if recall == "inject" else b"trimtab_recall('merlin-api database')"
    for number in range(36):
        if number % 6 == 0:
            script(upstream, dialect, BESIDE, FOUND)
            session.append({"role": "user", "content": f"What was the database of merlin-api? ({number})"})
        body = write(dialect, session, stream=False)
        body |= {dialect.transcript: body.pop(dialect.transcript)}
        response, answer = await post(client, proxy.url + dialect.path, body)
        sent, decisions = upstream.chats[-1].body, response.headers.get("x-trimtab-decisions", "").split(", ")
        is_cut = str([one.split(";")[:2] for one in decisions if not one.startswith(("recall", "truncate"))])
        if not sent.startswith(before):
            breaks += 1
            assert is_cut != was_cut, number
        before, was_cut, shown = sent.removesuffix(b"]}"), is_cut, shown + (mark in sent and FACT.encode() in sent)
        session = go_on(session, answer, stream=False) if find_ids(answer, stream=False) else session
        session += step(100 + number, make_talk(1, fact=FACT if number == 0 else "x")[2]["content"])
    assert 3 <= breaks <= 12
    assert shown > 3


async def test_off_nothing_is_added(client, upstream, start_proxy):
    """The same bytes go out and come back; no memory is kept."""
    proxy = await start_proxy("defaults.context_window=16000")
    script(upstream, CHAT, BESIDE, FOUND)
    data = orjson.dumps(write(CHAT, [QUESTION], stream=False))
    answer = await ask(client, proxy, CHAT, data)
    assert upstream.chats[-1].body == data
    assert calls_recall(CHAT, answer)
    assert not proxy.services.found_texts.total_bytes


@in_turn
async def test_an_upstream_that_compresses_all_the_same(dialect, stream, client, upstream, start_proxy):
    """Its answers are read, and its calls of the tool are answered."""
    script(upstream, dialect, Turn("Hm. ", (ASK,)), FOUND)
    body = write(dialect, [*make_talk(), QUESTION], stream=stream)
    plain = [await ask(client, upstream, dialect, body) for _ in range(2)]
    upstream.requests.clear()
    kind = "text/event-stream" if stream else "application/json"

    async def answer(_recorded: Any, _request: Any) -> Any:
        coded = gzip.compress(plain[len(upstream.chats) - 1])
        return web.Response(body=coded, content_type=kind, headers={"Content-Encoding": "gzip"})

    upstream.answer = answer
    told = await ask(client, await start_proxy(*TOOL), dialect, body)
    assert len(upstream.chats) == 2
    assert dialect.read_text(told, is_stream=stream) == "Hm. " + FOUND.text
    assert not calls_recall(dialect, told)


async def test_an_upstream_that_is_gone_in_a_later_round(client, upstream, start_proxy):
    """Our own error goes on as the same response."""
    proxy = await start_proxy(*TOOL)
    script(upstream, RESPONSES, Turn("Hm. ", (ASK,)))
    speak = upstream.answer

    async def answer(recorded: Any, request: Any) -> Any:
        if len(upstream.chats) > 1:
            request.transport.abort()
        return await speak(recorded, request)

    upstream.answer = answer
    stream = await ask(client, proxy, RESPONSES, write(RESPONSES, [*make_talk(), QUESTION], stream=True))
    events = read_sse(stream)
    assert events[-1]["type"] == "response.failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


async def test_what_was_sent_in_an_earlier_round_is_booked_if_no_connection_comes_about_later(
    client, upstream, start_proxy
):
    """The upstream has answered the first round, and listens no more."""
    script(upstream, RESPONSES, Turn("Hm. ", (ASK,)))
    body = write(RESPONSES, [*make_talk(), QUESTION], stream=False)
    said = await ask(client, upstream, RESPONSES, body)

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            server.close()
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        told = said if head.startswith(b"POST") else b"{}"
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(told) + told)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = await start_proxy(*TOOL, f"upstream.base_url=http://127.0.0.1:{port}/v1")
    async with client.post(f"{proxy.url}/v1/responses", json=body) as response:
        assert response.status == 502
        assert "sent=0" not in response.headers["x-trimtab-tokens"]
    await proxy.services.lifecycle.idle.wait()
    assert (await read_events(proxy.services.past))[-1].sent_tokens > 0


@each_dialect
async def test_a_replica_sends_what_was_found(dialect, client, upstream, start_proxy, tmp_path):
    """And so does the same process after a restart, if they share a store."""
    store = f"store=sqlite:///{tmp_path}/shared.sqlite3"
    proxy = await start_proxy(*TOOL, store)
    script(upstream, dialect, BESIDE, FOUND)
    session = [*make_talk(), QUESTION]
    answer = await ask(client, proxy, dialect, write(dialect, session, stream=False))
    later = orjson.dumps(write(dialect, go_on(session, answer, stream=False), stream=False))
    sent = []
    for one in (proxy, await start_proxy(*TOOL, store), await start_proxy(*TOOL)):
        await ask(client, one, dialect, later)
        sent.append(upstream.chats[-1].body)
    assert sent[0] == sent[1]
    assert FACT.encode() in sent[0]
    assert FACT.encode() not in sent[2]  # without it, the turn has the client's own call only
    assert not dialect.check_request(sent[2], sent[2])
    assert FACT.encode() not in (tmp_path / "shared.sqlite3").read_bytes()
