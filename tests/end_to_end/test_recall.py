"""What was cut is fetched back: with a question, or by the model's own calls, which are answered within the request.

Law: the client gets one answer and its own calls only; what was found is not lost; all rounds are booked; and whatever
a model asks, the answer stays within bounds.
"""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from support.client import post, wait_until
from support.command_line import run_trimtab
from support.dialects.spoken.all_dialects import CHAT, MESSAGES, RESPONSES, each_dialect
from support.dialects.spoken.dialect import Dialect, Wire, list_texts, read_sse
from support.events import read_events
from support.ids import make_uuid
from upstreams import scripted
from upstreams.scripted import Call, Turn
from upstreams.speech import messages as messages_speech
from upstreams.speech import responses as responses_speech
from upstreams.speech.spent import Said, Spent

FACT = "The staging database of merlin-api is merlin-db-77fe."
QUESTION = {"role": "user", "content": "What was the staging database of merlin-api?"}
CUTS = ("defaults.context_window=16000", "defaults.high_water=0.5", "defaults.summary.wait_seconds=0")
TOOL = (*CUTS, "defaults.recall=tool", "defaults.overflow_strategy=prune")
RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
ASK = Call("trimtab_recall", {"query": "merlin-api database"})
BESIDE = Turn("", (Call("run", {"n": 1}), ASK))
FOUND = Turn("It is merlin-db-77fe.")
KEY = {"Authorization": "Bearer sk-test"}
in_turn = pytest.mark.parametrize(("dialect", "stream"), [(CHAT, False), (RESPONSES, True), (MESSAGES, True)], ids=str)
"""For what a codec does in the same way whole and streamed."""


def step(name: str, text: str) -> list[Wire]:
    """A call and its result."""
    call = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [said, {"role": "tool", "tool_call_id": name, "content": text}]


def write_lines() -> str:
    """A result of which no line is that of another one."""
    return "".join(f"{make_uuid()} was built\n" for _ in range(30))


def make_talk() -> list[Wire]:
    """A session that is cut, and a question about the fact in its first result."""
    talk = [{"role": "user", "content": "Mend the build."}, *step("c", f"{FACT}\n{write_lines()}")]
    for number in range(19):
        talk += step(f"c{number}", write_lines())
    return [*talk, {"role": "assistant", "content": "Done."}, QUESTION]


@dataclass
class Talk:
    """A client and the model that it talks with through the proxy."""

    client: aiohttp.ClientSession
    upstream: Any
    proxy: Any
    dialect: Dialect
    stream: bool

    def script(self, *turns: Turn) -> None:
        """Let the model say these turns, one in each answer; then the last one again."""
        left = list(turns)

        async def answer(recorded: Any, request: web.BaseRequest) -> web.StreamResponse:
            turn = left.pop(0) if len(left) > 1 else left[0]
            name, body = f"t{len(self.upstream.chats)}", recorded.json
            if self.dialect is CHAT:
                return await scripted.reply(request, body, turn, name)
            speech = messages_speech if self.dialect is MESSAGES else responses_speech
            return await speech.reply(request, body, Said(turn, name, Spent(1000, 900)))

        self.upstream.answer = answer

    def interrupt(self, number: int, how: Callable[[web.BaseRequest], Awaitable[Any]]) -> None:
        """Let the request of this number be answered otherwise."""
        speak = self.upstream.answer

        async def answer(recorded: Any, request: web.BaseRequest) -> Any:
            return await (how(request) if len(self.upstream.chats) == number else speak(recorded, request))

        self.upstream.answer = answer

    def write(self, session: list[Wire]) -> Wire:
        """The body of a request. The transcript is its last member."""
        body = self.dialect.write(session, [RUN], **({"stream": True} if self.stream else {}))
        return body | {self.dialect.transcript: body.pop(self.dialect.transcript)}

    async def ask(self, session: list[Wire], *, status: int = 200, **headers: str) -> bytes:
        """Send a request to the proxy. Returns the answer."""
        response, answer = await post(self.client, self.proxy.url + self.dialect.path, self.write(session), **headers)
        assert response.status == status
        return answer

    def read(self, answer: bytes) -> str:
        """The text of an answer."""
        self.check_hidden(answer)
        return self.dialect.read_text(answer, is_stream=self.stream)

    def check_hidden(self, answer: bytes) -> None:
        """A client sees no call of the tool. Servers of Responses repeat the declarations."""
        shown = re.sub(rb'"tools":\[.*?\],"top_p"', b"", answer) if self.dialect is RESPONSES else answer
        assert b"trimtab_recall" not in shown

    def find_ids(self, answer: bytes) -> list[str]:
        """The ids of the calls in an answer, each once, in order."""
        found: dict[str, None] = {}

        def walk(value: Any) -> None:
            if isinstance(value, dict):
                one = value.get("call_id") or value.get("id")
                if one and (value.get("type") in {"tool_use", "function_call"} or "function" in value):
                    found[one] = None
            for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                walk(each)

        walk(read_sse(answer) if self.stream else orjson.loads(answer))
        return list(found)

    def go_on(self, session: list[Wire], answer: bytes) -> list[Wire]:
        """The session with the client's calls of an answer, and their results."""
        ids = self.find_ids(answer)
        calls = [step(one, "")[0]["tool_calls"][0] for one in ids]
        results = [step(one, f"ran {one}")[1] for one in ids]
        return [*session, {"role": "assistant", "content": None, "tool_calls": calls}, *results]

    def read_results(self) -> list[str]:
        """The results in the request that the upstream got last."""
        return self.dialect.read_results(self.upstream.chats[-1].json)


@pytest.fixture
def begin(client, upstream, start_proxy):
    """A function that starts a proxy, and a client and a model that says these turns."""

    async def begin_one(dialect: Dialect, *turns: Turn, stream: bool = False, settings: Any = TOOL) -> Talk:
        talk = Talk(client, upstream, await start_proxy(*settings), dialect, stream)
        talk.script(*turns)
        return talk

    return begin_one


@each_dialect
async def test_a_question_gets_what_was_cut(dialect, begin, start_proxy, upstream):
    """Behind the question, which stays as it is; the same again with every later request, here and on a replica."""
    settings = (*CUTS, "defaults.recall=inject", "defaults.overflow_strategy=prune")
    talk, session, bodies = await begin(dialect, FOUND, settings=settings), make_talk(), []
    proxies = [talk.proxy, await start_proxy(*settings)]
    for more in ([], [{"role": "assistant", "content": FOUND.text}, {"role": "user", "content": "Go on."}]):
        for proxy in proxies:
            talk.proxy = proxy
            await talk.ask([*session, *more])
            bodies.append(upstream.chats[-1].body)
    assert bodies[0] == bodies[1]
    assert bodies[2] == bodies[3]
    assert bodies[2].startswith(bodies[0].removesuffix(b"]}"))
    said = list_texts(dialect.read(orjson.loads(bodies[0]))[-1])[-1]
    assert said.startswith(f"{QUESTION['content']}\n[trimtab: from removed messages")
    assert FACT in said
    assert not dialect.check_request(orjson.dumps(talk.write([*session, *more])), bodies[2])


@each_dialect
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_call_is_answered_within_the_request(dialect, stream, begin, upstream, log):
    """The client gets the final answer only. The second request is the first one with the call and what was found."""
    talk = await begin(dialect, Turn("", (ASK,)), FOUND, stream=stream)
    assert talk.read(await talk.ask(make_talk())) == FOUND.text
    first, second = (sent.json for sent in upstream.chats)
    assert [tool.get("function", tool)["name"] for tool in first["tools"]] == ["trimtab_recall", "run"]
    elements = second.pop(dialect.transcript)
    assert elements[: len(first[dialect.transcript])] == first.pop(dialect.transcript)
    assert first == second
    assert FACT in talk.read_results()[-1]
    assert FACT not in str(first)
    assert not dialect.check_request(upstream.chats[1].body, upstream.chats[1].body)
    await wait_until(lambda: log.lines and log.lines[-1]["event"] == "request")
    assert log.lines[-1]["completion_tokens"] >= 14


@each_dialect
async def test_a_stream_goes_on_as_one_answer(dialect, begin, upstream):
    """What was said before the call stays; indexes and numbers go on; there is one beginning and one end."""
    talk = await begin(dialect, Turn("Let me look. ", (ASK,)), Turn("And again. ", (ASK,)), FOUND, stream=True)
    answer = await talk.ask(make_talk())
    events = read_sse(answer)
    assert talk.read(answer) == "Let me look. And again. " + FOUND.text
    assert len(upstream.chats) == 3
    if dialect is MESSAGES:
        kinds = [event["type"] for event in events]
        assert [kinds.count(kind) for kind in ("message_start", "message_delta", "message_stop")] == [1, 1, 1]
        assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 1, 2]
        assert events[-2]["delta"]["stop_reason"] == "end_turn"
    elif dialect is RESPONSES:
        check_numbers(events)
        added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        assert added == [0, 1, 2]
        assert events[-1]["type"] == "response.completed"
        texts = [item["content"][0]["text"] for item in events[-1]["response"]["output"]]
        assert texts == ["Let me look. ", "And again. ", FOUND.text]
    else:
        choices = [one for event in events for one in event["choices"]]
        assert len({event["id"] for event in events}) == 1
        assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["stop"]
        assert sum("role" in one["delta"] for one in choices) == 1


def check_numbers(events: list[Any]) -> None:
    """Clients refuse a stream of Responses whose id or numbers change."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


@in_turn
async def test_calls_beside_the_clients_own(dialect, stream, begin, upstream):
    """The client gets its own; what ours found stands behind the result of the client's, now and later.

    In the last round, too, whose calls ask for no further one.
    """
    two = Turn("", (Call("run", {"n": 1}), ASK, Call("run", {"n": 2})))
    talk = await begin(dialect, *(Turn("Hm. ", (ASK,)) for _ in range(4)), two, FOUND, stream=stream)
    session = make_talk()
    answer = await talk.ask(session)
    talk.check_hidden(answer)
    assert len(upstream.chats) == 5
    ids = talk.find_ids(answer)
    assert len(ids) == 2
    for more in ([], step("c99", "ok")):
        await talk.ask([*talk.go_on(session, answer), *more])
        *before, last = talk.read_results()[: -1 if more else None]
        assert last.startswith(f"ran {ids[1]}\n[trimtab: trimtab_recall('merlin-api database') found:]")
        assert FACT in last
        assert FACT not in "".join(before)


async def test_a_recording_is_replayed_to_the_byte(begin, tmp_path):
    """With the tool's declaration, and what was found beside the client's calls."""
    talk = await begin(MESSAGES, BESIDE, FOUND, settings=(*TOOL, f"record.dir={tmp_path}/recordings"))
    session = make_talk()
    await talk.ask(talk.go_on(session, await talk.ask(session)))
    assert FACT in talk.read_results()[-1]
    await talk.proxy.services.recordings.settle()
    replayed = await asyncio.to_thread(run_trimtab, "replay", str(tmp_path / "recordings"), "--check")
    assert replayed.exit_code == 0, replayed.output
    assert '"requests": 2' in replayed.output


@in_turn
async def test_a_model_that_asks_for_ever_gets_an_end(dialect, stream, begin, upstream):
    """After the last round the client gets what there is, as an answer that calls nothing, with its end."""
    talk = await begin(dialect, Turn("Hm. ", (ASK,)), stream=stream)
    answer = await talk.ask(make_talk())
    assert len(upstream.chats) == 5
    assert talk.read(answer) == "Hm. " * 5
    assert not talk.find_ids(answer)
    assert not stream or LAST_EVENTS[dialect.name] in answer


LONG_QUERY = Call("trimtab_recall", {"query": "merlin-api database " + "x" * 1_000_000})
MANY = tuple(Call("trimtab_recall", {"query": f"merlin-api {number}"}) for number in range(1000))
ODD = (
    Call("trimtab_recall", {"query": ["merlin-api"]}),
    Call("trimtab_recall", {"query": '" OR NEAR(', "range": [9**18, -1]}),
)


@in_turn
@pytest.mark.parametrize("calls", [(LONG_QUERY,), MANY, ODD], ids=["long", "many", "odd"])
async def test_a_hostile_model_is_answered_in_bounds(dialect, stream, calls, begin):
    """A query of a megabyte, a thousand calls at once, and queries that are none: nothing fails, nothing grows."""
    talk = await begin(dialect, Turn("Hm. ", calls), FOUND, stream=stream)
    answer = await talk.ask(make_talk())
    assert not talk.find_ids(answer)
    assert talk.read(answer) == ("Hm. " if calls is MANY else "Hm. " + FOUND.text)
    if calls is not MANY:
        assert all(len(text) < 20_000 for text in talk.read_results()[-len(calls) :])


@pytest.mark.parametrize(
    ("dialect", "stream", "is_gone"),
    [(CHAT, False, False), (MESSAGES, True, False), (RESPONSES, True, False), (RESPONSES, True, True)],
    ids=str,
)
async def test_a_round_that_is_refused_ends_the_answer(dialect, stream, is_gone, begin):
    """The client sees the error, the upstream's or ours; in a stream, as an event of the same response."""

    async def refuse(request: web.BaseRequest) -> web.Response:
        if is_gone:
            request.transport.abort()
        return scripted.error(429, message="slow down", type="rate_limit_error", code=None)

    talk = await begin(dialect, Turn("Hm. ", (ASK,)), stream=stream)
    talk.interrupt(2, refuse)
    told = await talk.ask(make_talk(), status=200 if stream else 429)
    assert (b"slow down" in told) is not is_gone
    if dialect is RESPONSES:
        check_numbers(read_sse(told))
        assert read_sse(told)[-1]["type"] == "response.failed"


async def test_a_round_that_breaks_off_never_looks_complete(begin, log):
    """The client's connection is reset, as with any answer that breaks off."""

    async def break_off(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(CHAT.write_event("It is "))
        request.transport.abort()
        return response

    talk = await begin(CHAT, Turn("Hm. ", (ASK,)), stream=True)
    talk.interrupt(2, break_off)
    with pytest.raises(aiohttp.ClientError):
        await talk.ask(make_talk())
    await wait_until(lambda: any(line.get("outcome") == "broken" for line in log.lines))


async def test_what_is_not_understood_passes_as_it_is(begin, log):
    """The fault is counted, and the client has every byte; also of a later round."""
    odd = {"index": [1], "id": "c", "function": {"name": "trimtab_recall", "arguments": "{}"}}
    pieces = [{"choices": [{"index": 0, "delta": {"tool_calls": [odd]}}]}, {"choices": [{"index": 0, "delta": {}}]}]
    body = b"".join(b"data: " + orjson.dumps(piece) + b"\n\n" for piece in pieces)
    talk = await begin(CHAT, FOUND, stream=True)
    talk.interrupt(1, lambda _: asyncio.sleep(0, web.Response(body=body, content_type="text/event-stream")))
    assert await talk.ask(make_talk()) == body
    assert [line["phase"] for line in log.lines if line["event"] == "fail_open"] == ["recall"]
    talk = await begin(CHAT, Turn("", (ASK,)))
    talk.interrupt(3, lambda _: asyncio.sleep(0, web.Response(body=b"[1]", content_type="application/json")))
    assert await talk.ask(make_talk()) == b"[1]"


@in_turn
async def test_an_upstream_that_compresses_all_the_same(dialect, stream, begin, client, upstream):
    """Its answers are read, and its calls of the tool are answered."""
    talk = await begin(dialect, Turn("Hm. ", (ASK,)), FOUND, stream=stream)
    body, kind = talk.write(make_talk()), "text/event-stream" if stream else "application/json"
    plain = [(await post(client, upstream.url.removesuffix("/v1") + dialect.path, body))[1] for _ in range(2)]
    upstream.requests.clear()

    async def answer(_recorded: Any, _request: Any) -> web.Response:
        coded = gzip.compress(plain[len(upstream.chats) - 1])
        return web.Response(body=coded, content_type=kind, headers={"Content-Encoding": "gzip"})

    upstream.answer = answer
    assert talk.read(await talk.ask(make_talk())) == "Hm. " + FOUND.text
    assert len(upstream.chats) == 2


LAST_EVENTS = {CHAT.name: b"[DONE]", MESSAGES.name: b'"message_stop"', RESPONSES.name: b'"response.completed"'}


@each_dialect
async def test_a_client_that_closes_at_the_last_event_loses_nothing(dialect, begin, client, upstream):
    """As the SDKs of OpenAI and Anthropic do, whatever the upstream still has to say."""
    talk, session = await begin(dialect, BESIDE, FOUND, stream=True), make_talk()
    said = (await post(client, upstream.url.removesuffix("/v1") + dialect.path, talk.write(session)))[1]
    upstream.requests.clear()

    async def stay(request: web.BaseRequest) -> None:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(said)
        await asyncio.Event().wait()

    talk.interrupt(1, stay)
    read = b""
    async with client.post(talk.proxy.url + dialect.path, json=talk.write(session), headers=KEY) as response:
        while LAST_EVENTS[dialect.name] not in read:
            read += await asyncio.wait_for(response.content.readany(), 30)
    talk.check_hidden(read)
    await talk.ask(talk.go_on(session, read))
    assert FACT in talk.read_results()[-1]


@each_dialect
@pytest.mark.parametrize("has_begun", [False, True], ids=["unanswered", "answering"])
async def test_a_round_whose_client_leaves_is_cancelled_and_booked(dialect, has_begun, begin, client, upstream, log):
    """Its prompt was sent, so it may be charged; what the model wrote until then has its price."""
    talk, reached = await begin(dialect, Turn("Let me look. ", (ASK,)), stream=True), asyncio.Event()

    async def hang(request: web.BaseRequest) -> None:
        try:
            if has_begun:
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                for event in dialect.write_events("It is merlin. " * 20)[:-1]:
                    await response.write(event)
            reached.set()
            await asyncio.Event().wait()
        finally:
            upstream.cancelled.set()

    talk.interrupt(2, hang)
    read = b""
    async with client.post(talk.proxy.url + dialect.path, json=talk.write(make_talk()), headers=KEY) as response:
        while (b"merlin" if has_begun else b"look") not in read:
            read += await asyncio.wait_for(response.content.readany(), 30)
        await asyncio.wait_for(reached.wait(), 30)
    await asyncio.wait_for(upstream.cancelled.wait(), 30)
    await wait_until(lambda: any(line["event"] == "request" for line in log.lines))
    (told,) = [line for line in log.lines if line["event"] == "request"]
    assert (told["outcome"], told["recall_rounds"]) == ("aborted", 1)
    assert told["recall_prompt_tokens"] > (0 if has_begun else 1000)
    assert told["completion_tokens"] >= (40 if has_begun else 7)


@each_dialect
async def test_a_clients_text_is_never_found_by_another(dialect, begin):
    """Also if both have the same transcript and the same calls: what one has found is not shown to the other."""
    talk, session = await begin(dialect, BESIDE, FOUND), make_talk()
    later = talk.go_on(session, await talk.ask(session))
    for key, is_shown in (("sk-other", False), ("sk-test", True)):
        await talk.ask(later, Authorization=f"Bearer {key}")
        assert (FACT in talk.read_results()[-1]) is is_shown


async def test_a_request_that_was_refused_keeps_what_was_found(begin, upstream):
    """It is planned again for a smaller window; what was found stands in the second attempt as well."""
    talk, session = await begin(CHAT, BESIDE, FOUND), make_talk()
    later = talk.go_on(session, await talk.ask(session))
    talk.interrupt(2, lambda _: asyncio.sleep(0, scripted.refuse(20_000, 9_000)))
    await talk.ask(later)
    first, second = (CHAT.read_results(sent.json)[-1] for sent in upstream.chats[1:])
    assert first == second
    assert FACT in second


@in_turn
async def test_an_answer_for_which_there_is_no_memory_passes_as_it_is(dialect, stream, begin):
    """What was taken for an answer is given back with its end."""
    talk = await begin(dialect, Turn("It is long. " * 5000, (ASK,)), FOUND, stream=stream)
    memory, speak, left = talk.proxy.services.memory, talk.upstream.answer, list[int]()

    async def look(recorded: Any, request: web.BaseRequest) -> Any:
        left.append(memory.left_bytes)
        return await speak(recorded, request)

    talk.upstream.answer = look
    talk.check_hidden(await talk.ask(make_talk()))
    assert left == [left[0]] * 2  # the second round has as much as the first had

    async def starve(recorded: Any, request: web.BaseRequest) -> Any:
        memory.add(-memory.left_bytes)
        return await speak(recorded, request)

    talk.script(Turn("It is long. " * 5000, (ASK,)))
    speak, talk.upstream.answer = talk.upstream.answer, starve
    answer = await talk.ask(make_talk())
    assert "trimtab_recall" in str(read_sse(answer) if stream else orjson.loads(answer)["choices"])
    await talk.proxy.services.lifecycle.idle.wait()
    assert not memory._held


async def test_what_was_sent_in_an_earlier_round_is_booked_if_no_connection_comes_about_later(begin, client, upstream):
    """The upstream has answered the first round, and listens no more."""
    talk = await begin(RESPONSES, Turn("Hm. ", (ASK,)))
    said = (await post(client, f"{upstream.url}/responses", talk.write(make_talk())))[1]

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
    talk = await begin(RESPONSES, FOUND, settings=(*TOOL, f"upstream.base_url=http://127.0.0.1:{port}/v1"))
    async with client.post(f"{talk.proxy.url}/v1/responses", json=talk.write(make_talk())) as response:
        assert response.status == 502
        assert "sent=0" not in response.headers["x-trimtab-tokens"]
    await talk.proxy.services.lifecycle.idle.wait()
    assert (await read_events(talk.proxy.services.past))[-1].sent_tokens > 0


async def test_a_replica_sends_what_was_found(begin, upstream, start_proxy, tmp_path):
    """And so does the same process after a restart, if they share a store, in which it cannot be read."""
    store = f"store=sqlite:///{tmp_path}/shared.sqlite3"
    talk, session = await begin(CHAT, BESIDE, FOUND, settings=(*TOOL, store)), make_talk()
    later, sent = talk.go_on(session, await talk.ask(session)), []
    for proxy in (talk.proxy, await start_proxy(*TOOL, store), await start_proxy(*TOOL)):
        talk.proxy = proxy
        await talk.ask(later)
        sent.append(upstream.chats[-1].body)
    assert sent[0] == sent[1]
    assert FACT.encode() in sent[0]
    assert FACT.encode() not in sent[2]  # without it, the turn has the client's own call only
    assert not CHAT.check_request(sent[2], sent[2])
    assert FACT.encode() not in (tmp_path / "shared.sqlite3").read_bytes()
