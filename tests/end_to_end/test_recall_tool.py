"""The model calls the tool of recall: its calls are answered within the request, in every dialect, streamed or not."""

import asyncio
import re
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from end_to_end.test_recall import CUTS, FACT, QUESTION, make_talk, step
from support.client import post, wait_until
from support.command_line import run_trimtab
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect, read_sse
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from upstreams import scripted
from upstreams.scripted import Call, Turn
from upstreams.speech import messages as messages_speech
from upstreams.speech import responses as responses_speech
from upstreams.speech.spent import Said, Spent

TOOL = (*CUTS, "defaults.recall=tool", "defaults.overflow_strategy=prune", "defaults.context_window=16000")
RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
ASK = Call("trimtab_recall", {"query": "merlin-api database"})
FOUND = Turn("It is merlin-db-77fe.")
each_form = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
in_turn = pytest.mark.parametrize(("dialect", "stream"), [(CHAT, False), (RESPONSES, True), (MESSAGES, True)], ids=str)
"""For what a codec does in the same way whole and streamed."""


def script(upstream: Any, dialect: Dialect, *turns: Turn) -> None:
    """Let the model say these turns, one in each answer; then the last one again."""
    left = list(turns)

    async def answer(recorded: Any, request: Any) -> Any:
        turn = left.pop(0) if len(left) > 1 else left[0]
        name, body = f"t{len(upstream.chats)}", recorded.json
        said = Said(turn, name, Spent(1000, 900))
        if dialect is MESSAGES:
            return await messages_speech.reply(request, body, said)
        if dialect is RESPONSES:
            return await responses_speech.reply(request, body, said)
        return await scripted.reply(request, body, turn, name)

    upstream.answer = answer


def write(dialect: Dialect, talk: list[Any], *, stream: bool, **members: Any) -> dict[str, Any]:
    return dialect.write(talk, [RUN], **({"stream": True} if stream else {}), **members)


async def ask(client: Any, proxy: Any, dialect: Dialect, body: Any) -> bytes:
    response, answer = await post(client, proxy.url + dialect.path, body)
    assert response.status == 200
    return answer


def read_tools(body: dict[str, Any]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in body.get("tools") or ()]


@each_dialect
@each_form
async def test_a_call_is_answered_within_the_request(dialect, stream, client, upstream, start_proxy, log):
    """The client gets the final answer only. The second request is the first one with the call and what was found."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, Turn("", (ASK,)), FOUND)
    body = write(dialect, [*make_talk(), QUESTION], stream=stream)
    answer = await ask(client, proxy, dialect, body)
    assert dialect.read_text(answer, is_stream=stream) == FOUND.text
    assert not calls_recall(dialect, answer)
    first, second = (sent.json for sent in upstream.chats)
    assert read_tools(first) == ["trimtab_recall", "run"]
    shared = len(first[dialect.transcript])
    assert second[dialect.transcript][:shared] == first[dialect.transcript]
    assert {key: value for key, value in second.items() if key != dialect.transcript} == {
        key: value for key, value in first.items() if key != dialect.transcript
    }
    assert FACT in dialect.read_results(second)[-1]
    assert FACT not in orjson.dumps(first).decode()
    assert not dialect.check_request(orjson.dumps(second), orjson.dumps(second))
    await wait_until(lambda: log.lines and log.lines[-1]["event"] == "request")
    assert log.lines[-1]["completion_tokens"] >= 14


@each_dialect
async def test_a_stream_goes_on_as_one_answer(dialect, client, upstream, start_proxy):
    """What was said before the call stays; indexes and numbers go on; there is one beginning and one end."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, Turn("Let me look. ", (ASK,)), Turn("And again. ", (ASK,)), FOUND)
    events = read_sse(await ask(client, proxy, dialect, write(dialect, [*make_talk(), QUESTION], stream=True)))
    assert not calls_recall(dialect, orjson.dumps(events))
    assert len(upstream.chats) == 3
    if dialect is MESSAGES:
        kinds = [event["type"] for event in events]
        assert [kinds.count(kind) for kind in ("message_start", "message_delta", "message_stop")] == [1, 1, 1]
        opened = [event["index"] for event in events if event["type"] == "content_block_start"]
        assert opened == [0, 1, 2]
        assert events[-2]["delta"]["stop_reason"] == "end_turn"
    elif dialect is RESPONSES:
        numbers = [event["sequence_number"] for event in events]
        assert numbers == list(range(len(numbers)))
        added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        assert added == [0, 1, 2]
        assert events[-1]["type"] == "response.completed"
        texts = [item["content"][0]["text"] for item in events[-1]["response"]["output"]]
        assert len({event["response"]["id"] for event in events if "response" in event}) == 1
        assert texts == ["Let me look. ", "And again. ", FOUND.text]
    else:
        assert len({event["id"] for event in events}) == 1
        assert [one["finish_reason"] for event in events for one in event["choices"] if one["finish_reason"]] == [
            "stop"
        ]
        assert sum("role" in one["delta"] for event in events for one in event["choices"]) == 1


@in_turn
async def test_calls_beside_the_clients_own(dialect, stream, client, upstream, start_proxy):
    """The client gets its own; what ours found stands behind the result of the client's, now and later."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, Turn("", (Call("run", {"n": 1}), ASK, Call("run", {"n": 2}))), FOUND)
    session = [*make_talk(), QUESTION]
    answer = await ask(client, proxy, dialect, write(dialect, session, stream=stream))
    assert not calls_recall(dialect, answer)
    assert len(upstream.chats) == 1
    ids = find_ids(answer, stream=stream)
    assert len(ids) == 2
    calls = [{"id": one, "type": "function", "function": {"name": "run", "arguments": "{}"}} for one in ids]
    results = [{"role": "tool", "tool_call_id": one, "content": f"ran {one}"} for one in ids]
    talk = [*session, {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    for more in ([], step(99, "ok")):
        await ask(client, proxy, dialect, write(dialect, [*talk, *more], stream=stream))
        told = dialect.read_results(upstream.chats[-1].json)
        last = told[-1 - len(more) // 2]
        assert last.startswith(f"ran {ids[1]}\n[trimtab: trimtab_recall('merlin-api database') found:]")
        assert FACT in last
        assert FACT not in "".join(told[: -1 - len(more) // 2])


def calls_recall(dialect: Dialect, answer: bytes) -> bool:
    """Whether a client sees a call of the tool. Servers of Responses repeat the declarations."""
    return b"trimtab_recall" in (re.sub(rb'"tools":\[.*?\],"top_p"', b"", answer) if dialect is RESPONSES else answer)


def find_ids(answer: bytes, *, stream: bool) -> list[str]:
    """The ids of the calls in an answer, each once, in order."""
    found: dict[str, None] = {}

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            one = value.get("call_id") or value.get("id")
            is_call = value.get("type") in {"tool_use", "function_call"} or "function" in value
            if is_call and one:
                found[one] = None
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(each)

    walk(read_sse(answer) if stream else orjson.loads(answer))
    return list(found)


@each_dialect
async def test_a_recording_is_replayed_to_the_byte(dialect, client, upstream, start_proxy, tmp_path):
    """With the tool's declaration, and what was found beside the client's calls."""
    proxy = await start_proxy(*TOOL, f"record.dir={tmp_path}/recordings")
    script(upstream, dialect, Turn("", (Call("run", {"n": 1}), ASK)), FOUND)
    session = [*make_talk(), QUESTION]
    answer = await ask(client, proxy, dialect, write(dialect, session, stream=False))
    (name,) = find_ids(answer, stream=False)
    call = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
    session += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    session += [{"role": "tool", "tool_call_id": name, "content": "ran"}]
    await ask(client, proxy, dialect, write(dialect, session, stream=False))
    assert FACT in dialect.read_results(upstream.chats[-1].json)[-1]
    await proxy.services.recordings.settle()
    replayed = await asyncio.to_thread(run_trimtab, "replay", str(tmp_path / "recordings"), "--check")
    assert replayed.exit_code == 0, replayed.output
    assert '"requests": 2' in replayed.output


@in_turn
async def test_a_model_that_asks_for_ever_gets_an_end(dialect, stream, client, upstream, start_proxy):
    """After the last round the client gets what there is, as an answer that calls nothing."""
    proxy = await start_proxy(*TOOL)
    script(upstream, dialect, Turn("Hm. ", (ASK,)))
    answer = await ask(client, proxy, dialect, write(dialect, [*make_talk(), QUESTION], stream=stream))
    assert len(upstream.chats) == 5
    assert not calls_recall(dialect, answer)
    assert dialect.read_text(answer, is_stream=stream) == "Hm. " * 5
    assert not find_ids(answer, stream=stream)


@in_turn
async def test_an_answer_without_a_call_passes_byte_for_byte(dialect, stream, client, upstream, start_proxy):
    """Also if it talks about the tool, and with reasoning and calls of the client's own."""
    proxy, plain = await start_proxy(*TOOL), await start_proxy(*CUTS)
    turn = Turn("I could ask trimtab_recall, but no.", (Call("run", {"n": 1}),), thought="Hm.")
    body = write(dialect, [*make_talk(), QUESTION], stream=stream)
    answers = []
    for one in (proxy, plain):
        upstream.requests.clear()
        script(upstream, dialect, turn)
        answers.append(await ask(client, one, dialect, body))
    assert answers[0].split(b'"usage"')[0] == answers[1].split(b'"usage"')[0]


@in_turn
async def test_an_answer_for_which_there_is_no_memory_passes_as_it_is(dialect, stream, client, upstream, start_proxy):
    """What was taken for an answer is given back with its end."""
    proxy = await start_proxy(*TOOL)
    memory, taken = proxy.services.memory, list[int]()
    long = Turn("It is long. " * 5000, (ASK,))
    body = write(dialect, [*make_talk(), QUESTION], stream=stream)
    script(upstream, dialect, long, FOUND, long)
    assert not calls_recall(dialect, await ask(client, proxy, dialect, body))
    answer = upstream.answer

    async def starve(recorded: Any, request: Any) -> Any:
        taken.append(memory.left_bytes)
        memory.add(-memory.left_bytes)
        return await answer(recorded, request)

    upstream.answer = starve
    assert calls_recall(dialect, await ask(client, proxy, dialect, body))
    await proxy.services.lifecycle.idle.wait()
    assert not memory._held
    assert len(taken) == 1


@each_dialect
async def test_who_does_not_get_the_tool(dialect, client, upstream, start_proxy):
    """A request without tools, and one that forces a call; their bytes stay. Off, nothing is declared."""
    proxy, off = await start_proxy(*TOOL), await start_proxy(*CUTS)
    forced = {"type": "any"} if dialect is MESSAGES else "required"
    talk = [QUESTION]
    bodies = [dialect.write(talk), write(dialect, talk, stream=False, tool_choice=forced)]
    for one, body in [(proxy, bodies[0]), (proxy, bodies[1]), (off, write(dialect, talk, stream=False))]:
        data = orjson.dumps(body)
        await ask(client, one, dialect, data)
        assert upstream.chats[-1].body == data
    free = {"type": "auto"} if dialect is MESSAGES else "auto"
    await ask(client, proxy, dialect, write(dialect, talk, stream=False, tool_choice=free))
    assert read_tools(upstream.chats[-1].json) == ["trimtab_recall", "run"]


@each_dialect
async def test_the_declaration_stays_from_request_to_request(dialect, client, upstream, start_proxy):
    """From a session's first request on, the forwarded prefix stands."""
    proxy = await start_proxy(*TOOL)
    talk = [QUESTION, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
    for stop in (1, 3):
        body = write(dialect, talk[:stop], stream=False)
        await ask(client, proxy, dialect, body | {dialect.transcript: body.pop(dialect.transcript)})
    first, second = (sent.body for sent in upstream.chats)
    assert second.startswith(first.removesuffix(b"]}"))


def interrupt(upstream: Any, in_second: Any, dialect: Any = CHAT) -> None:
    """Let the model ask in its first answer; `in_second` writes the second one."""
    script(upstream, dialect, Turn("Hm. ", (ASK,)))
    speak = upstream.answer

    async def answer(recorded: Any, request: Any) -> Any:
        return await (in_second(request) if len(upstream.chats) == 2 else speak(recorded, request))

    upstream.answer = answer


@each_dialect
@each_form
async def test_a_round_that_is_refused_ends_the_answer(dialect, stream, client, upstream, start_proxy):
    """The client sees the upstream's own error; in a stream that was begun, as an event of the same response."""

    async def refuse(_: Any) -> Any:
        return scripted.error(429, message="slow down", type="rate_limit_error", code=None)

    proxy = await start_proxy(*TOOL)
    interrupt(upstream, refuse, dialect)
    body = write(dialect, [*make_talk(), QUESTION], stream=stream)
    response, told = await post(client, proxy.url + dialect.path, body)
    assert response.status == (200 if stream else 429)
    assert b"slow down" in told
    if stream and dialect is RESPONSES:  # clients refuse a stream whose id or numbers change
        events = read_sse(told)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert len({event["response"]["id"] for event in events if "response" in event}) == 1


async def test_a_round_that_breaks_off_never_looks_complete(client, upstream, start_proxy, log):
    """The client's connection is reset, as with any answer that breaks off."""

    async def break_off(request: Any) -> Any:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(CHAT.write_event("It is "))
        request.transport.abort()
        return response

    proxy = await start_proxy(*TOOL)
    interrupt(upstream, break_off)
    with pytest.raises(aiohttp.ClientError):
        await ask(client, proxy, CHAT, write(CHAT, [*make_talk(), QUESTION], stream=True))
    await wait_until(lambda: any(line.get("outcome") == "broken" for line in log.lines))


async def test_a_whole_round_that_is_no_answer_passes_as_it_is(client, upstream, start_proxy):
    async def answer_oddly(_: Any) -> Any:
        return web.Response(body=b"[1]", content_type="application/json")

    proxy = await start_proxy(*TOOL)
    script(upstream, CHAT, Turn("", (ASK,)), FOUND)
    interrupt(upstream, answer_oddly)
    assert await ask(client, proxy, CHAT, write(CHAT, [*make_talk(), QUESTION], stream=False)) == b"[1]"


async def test_a_stream_that_is_not_understood_passes_as_it_is(client, upstream, start_proxy, log):
    """The fault is counted, and the client has every byte."""
    odd = {"index": [1], "id": "c", "function": {"name": "trimtab_recall", "arguments": "{}"}}
    pieces = [{"choices": [{"index": 0, "delta": {"tool_calls": [odd]}}]}, {"choices": [{"index": 0, "delta": {}}]}]
    body = b"".join(b"data: " + orjson.dumps(piece) + b"\n\n" for piece in pieces)

    async def answer(_recorded: Any, _request: Any) -> Any:
        return web.Response(body=body, content_type="text/event-stream")

    upstream.answer = answer
    proxy = await start_proxy(*TOOL)
    assert await ask(client, proxy, CHAT, write(CHAT, [*make_talk(), QUESTION], stream=True)) == body
    assert [line["phase"] for line in log.lines if line["event"] == "fail_open"] == ["recall"]


async def test_a_client_that_leaves_ends_the_round(client, upstream, start_proxy):
    """The upstream's request is cancelled."""
    proxy, reached = await start_proxy(*TOOL), asyncio.Event()

    async def wait(_: Any) -> Any:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            upstream.cancelled.set()

    interrupt(upstream, wait)
    body = write(CHAT, [*make_talk(), QUESTION], stream=True)
    async with client.post(proxy.url + CHAT.path, json=body) as response:
        assert await response.content.readany()  # what was said before the call
        await asyncio.wait_for(reached.wait(), 30)
    await asyncio.wait_for(upstream.cancelled.wait(), 30)
