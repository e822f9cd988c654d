"""A prompt that the upstream refuses for its length is sent again, shorter. The client sees one answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace
from support.client import post, settle
from support.journeys import MakeStages, Stages, make_reply, read, read_session
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, Recorded, completion, stream, write_note
from upstreams.speech.messages import refuse

from trimtab.proxy.compaction import pool
from trimtab.proxy.compaction.offload import LARGE_BODY_BYTES
from trimtab.proxy.exchange.early_answer import Opening
from trimtab.proxy.exchange.retry import learn_from_retry, recover
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.rules.tokens.families import O200K

END = {"role": "assistant", "content": "It is mended."}
WINDOW = 16_000
"""The window of the upstream that refuses. trimtab assumes 128,000."""


@dataclass
class Strict:
    """An upstream that refuses prompts longer than `window`. Each of our tokens is `ratio` of its own.

    `seen`: the prompts' tokens by its own count; negative for refused prompts.
    """

    window: int = WINDOW
    ratio: float = 1.0
    as_event: bool = False
    adds_completion: bool = False
    seen: list[int] = field(default_factory=list)

    async def __call__(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        tokens = round(
            self.ratio * len(pool.load_encoding(O200K).encode(recorded.body.decode(), disallowed_special=()))
        )
        streams = recorded.json.get("stream") is True
        added = recorded.json.get("max_tokens", 0) if self.adds_completion else 0
        if tokens + added > self.window:
            self.seen.append(-tokens)
            said = f"your messages resulted in {tokens} tokens"
            if added:
                said = f"you requested {tokens + added} tokens ({tokens} in the messages, {added} in the completion)"
            message = f"This model's maximum context length is {self.window} tokens. However, {said}."
            body = orjson.dumps({"error": {"message": message, "code": "context_length_exceeded"}})
            if self.as_event and streams:
                return await _stream_bytes(request, b": wait\n\n", b"data: " + body + b"\n\n")
            return web.Response(body=body, status=400, content_type="application/json")
        self.seen.append(tokens)
        if recorded.asks_for_summary:
            return completion(write_note("SUMMARY of the work so far."), prompt_tokens=tokens, completion_tokens=7)
        if streams:
            return await stream(request, "All ", "good.")
        return completion(prompt_tokens=tokens, completion_tokens=3)

    @property
    def refused(self) -> int:
        """The number of refused prompts."""
        return sum(1 for tokens in self.seen if tokens < 0)


async def _stream_bytes(request: web.BaseRequest, *chunks: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


def _session(steps: int = 60) -> dict[str, Any]:
    session = make_session(steps)
    return {"model": "strict-model", "messages": session["messages"][:-1], "tools": session["tools"]}


def _requests(steps: int) -> Iterator[dict[str, Any]]:
    body = _session(steps)
    return ({**body, "messages": messages} for messages in requests_of({"messages": [*body["messages"], END]}))


async def _retries(client: Any, proxy: Any) -> dict[str, float]:
    text = await (await client.get(proxy.url + "/metrics")).text()
    lines = [line for line in text.splitlines() if line.startswith("trimtab_overflow_retries_total{")]
    return {line.split('result="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


@pytest.mark.parametrize("streams", [False, True])
async def test_the_client_sees_the_second_attempt_only(streams, client, upstream, start_proxy):
    upstream.answer = strict = Strict()
    proxy = await start_proxy()
    *_, body, later = [one | {"stream": streams} for one in _requests(60)]
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    assert response.status == 200
    assert b"All " in answer
    assert b"good." in answer
    assert len(upstream.chats) == 2
    assert upstream.chats[0].body == orjson.dumps(body)
    sent = response.headers["x-trimtab-tokens"]
    assert f"limit={WINDOW - WINDOW // 4}" in sent
    assert await _retries(client, proxy) == {"recovered": 1.0}
    await settle(proxy)
    await post(client, proxy.url + "/v1/chat/completions", later)
    assert strict.refused == 1, strict.seen


async def test_a_refusal_of_a_large_body_teaches_how_its_server_counts(client, upstream, start_proxy):
    """Although the answers to such bodies are not examined."""
    upstream.answer = strict = Strict(window=200_000, ratio=1.5)
    proxy = await start_proxy("defaults.context_window=1000000")
    spoken = [{"role": "assistant", "content": f"{at} " + "and then the word was there " * 3600} for at in range(12)]
    asked = [{"role": "user", "content": f"Go on after {at}."} for at in range(13)]
    messages = [one for pair in zip(asked, spoken, strict=False) for one in pair]
    body = orjson.dumps({"model": "strict-model", "messages": [*messages, asked[-1]]})
    assert len(body) > LARGE_BODY_BYTES
    headers = {"Authorization": "Bearer sk-test"}
    async with client.post(proxy.url + "/v1/chat/completions", data=BytesIO(body), headers=headers) as response:
        assert response.status == 200
    await settle(proxy)
    assert strict.refused == 1, strict.seen
    known = next(one for one in proxy.services.models.list_known() if one.name.tenant)
    (ratio,) = [one.ratio for one in known.learned if one.ratio is not None]
    assert ratio == pytest.approx(1.5, rel=0.02)


FLAT = {
    "object": "error",
    "message": "The input (90000 tokens) is longer than the model's context length (8192 tokens).",
}
HOPELESS = {"model": "m", "messages": [{"role": "user", "content": "word " * 9000}]}
"""One message that no rule makes shorter."""


def _always(status: int, body: bytes, **headers: str) -> Callable[..., Any]:
    """An upstream that gives the same answer to every request."""

    async def answer(_recorded: Recorded, _request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, body=body, headers={"Content-Type": "application/json", **headers})

    return answer


@pytest.mark.parametrize("body", [_session(), HOPELESS], ids=["refused twice", "nothing shorter"])
async def test_a_refusal_that_stands_comes_as_it_came(body, client, upstream, start_proxy):
    nested = {
        "error": {"code": 400, "message": "input token count (99999) exceeds the maximum number of tokens (8192)"}
    }
    refusal = orjson.dumps([nested], option=orjson.OPT_INDENT_2)
    upstream.answer = _always(400, refusal, **{"X-Up": "1"})
    proxy = await start_proxy()
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    assert (response.status, response.headers["X-Up"], answer) == (400, "1", refusal)

    upstream.answer = _always(400, orjson.dumps(FLAT), **{"X-Up": "1"})
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body | {"stream": True})
    assert (response.status, response.headers["X-Up"]) == (400, "1")
    assert int(response.headers["Content-Length"]) == len(answer)
    error = orjson.loads(answer)["error"]
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert error["message"] == FLAT["message"]


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_a_proxy_that_must_not_act_passes_refusals_on(mode, client, upstream, start_proxy):
    upstream.answer = _always(400, orjson.dumps(FLAT))
    proxy = await start_proxy(f"mode={mode}")
    response, answer = await post(client, proxy.url + "/v1/chat/completions", _session())
    assert (response.status, answer) == (400, orjson.dumps(FLAT))
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("status", [429, 529])
async def test_other_errors_are_never_tried_again(status, client, upstream, start_proxy):
    body = b'{"error":{"message":"Rate limit reached on tokens per min (TPM): Limit 9000, Used 9000, Requested 2000."}}'
    upstream.answer = _always(status, body, **{"Retry-After": "7", "x-ratelimit-remaining-tokens": "0"})
    proxy = await start_proxy()
    response, answer = await post(client, proxy.url + "/v1/chat/completions", _session())
    assert (response.status, answer) == (status, body)
    assert (response.headers["Retry-After"], response.headers["x-ratelimit-remaining-tokens"]) == ("7", "0")
    assert len(upstream.requests) == 1


async def test_comments_pass_at_once_and_only_the_second_stream_follows(client, upstream, start_proxy):
    """No byte of the refusal reaches the client, although its headers had to."""
    upstream.answer = Strict(as_event=True)
    proxy = await start_proxy()
    _, answer = await post(client, proxy.url + "/v1/chat/completions", _session() | {"stream": True})
    assert answer.startswith(b": wait\n\ndata: ")
    assert b"error" not in answer
    assert answer.count(b"[DONE]") == 1


async def test_an_event_of_another_error_passes(client, upstream, start_proxy):
    event = b'data: {"error":{"message":"The engine is overloaded","code":503}}\n\n'

    async def answer(_recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        return await _stream_bytes(request, event[:20], event[20:], b"data: [DONE]\n\n")

    upstream.answer = answer
    proxy = await start_proxy()
    _, body = await post(client, proxy.url + "/v1/chat/completions", _session() | {"stream": True})
    assert body == event + b"data: [DONE]\n\n"
    assert len(upstream.chats) == 1


async def test_whatever_the_second_attempt_meets_is_the_answer(client, upstream, start_proxy):
    strict = Strict()

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        response = await strict(recorded, request)
        if recorded.asks_for_summary or response.status != 200:
            return response
        return web.Response(status=429, body=b'{"error":{"message":"no"}}', content_type="application/json")

    upstream.answer = answer
    proxy = await start_proxy()
    response, body = await post(client, proxy.url + "/v1/chat/completions", _session())
    assert (response.status, body) == (429, b'{"error":{"message":"no"}}')
    assert len(upstream.chats) == 2
    assert await _retries(client, proxy) == {"failed": 1.0}


async def test_a_completion_that_the_server_adds_is_left_room_from_then_on(client, upstream, start_proxy):
    upstream.answer = strict = Strict(adds_completion=True)
    proxy = await start_proxy(f"defaults.context_window={WINDOW}")
    for body in [*_requests(40)][20::4]:
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body | {"max_tokens": 10_000})
        assert response.status == 200
        await settle(proxy)
    assert strict.refused == 1, strict.seen


NARROW = "This model's maximum context length is 4000 tokens. However, your messages resulted in 7000 tokens."
SAID = Overflow(Kind.PROMPT, NARROW, limit=4000)
UNSAID = Overflow(Kind.PROMPT, "Input is too long for requested model.")
PRUNES = ("defaults.overflow_strategy=prune", "defaults.completion_reserve=1000")


async def _window_of(stages: Stages) -> int:
    """The window with which the next request is planned."""
    await stages.settle()
    return (await stages.prepare(read_session(1))).view.policy.context_window


async def test_a_refusal_narrows_the_second_attempt_and_those_that_follow(make_stages: MakeStages) -> None:
    stages = await make_stages(*PRUNES)
    first = await stages.attempt(read_session(50))
    second = await recover(stages.services, first, SAID, make_reply())

    assert first.compacted.sent_tokens > 4000 > second.compacted.limit_tokens >= second.compacted.sent_tokens
    assert (second.outcome, second.body) == ("compacted", second.compacted.pieces)
    assert second.lesson.window_tokens == 4000
    assert second.seconds[: len(first.seconds)] == first.seconds
    assert second.seconds[-1][0] == "apply"
    assert await _window_of(stages) == 4000


async def test_nothing_is_sent_again_that_is_not_shorter(make_stages: MakeStages) -> None:
    """Neither a message that no rule shortens, nor what is refused for its completion, nor after a fault of ours."""
    stages = await make_stages(*PRUNES, "defaults.on_exceeded=forward")
    whole = await stages.attempt(read(HOPELESS["messages"]))
    assert whole.body is not None
    session = await stages.attempt(read_session(40))
    broken = replace(stages.services, models=None)

    assert await recover(stages.services, whole, SAID, make_reply()) is None
    assert await recover(stages.services, session, Overflow(Kind.COMPLETION), make_reply()) is None
    assert stages.count("fail_open_total", phase="recover") == 0
    assert await recover(broken, session, SAID, make_reply()) is None
    assert stages.count("fail_open_total", phase="recover") == 1
    second = await recover(stages.services, session, UNSAID, make_reply())
    await learn_from_retry(broken, second, second.lesson, Opening(200))
    assert stages.count("fail_open_total", phase="recover") == 2


async def test_what_the_policy_refuses_within_the_narrower_window_is_not_sent_again(make_stages: MakeStages) -> None:
    stages = await make_stages(*PRUNES, "defaults.on_exceeded=error")
    messages = make_session(1)["messages"][:-1]
    messages[1]["content"] = "word " * 4500
    first = await stages.attempt(read(messages))

    assert (first.refusal, await recover(stages.services, first, SAID, make_reply())) == (None, None)
    last = first.call.ledger.entries[-1]
    assert (last.attempt, last.limit_tokens) == (2, 3000)
    assert last.reason == "nothing shorter fits this limit"
    assert last.tokens_before > 4000


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ('maximum context length of "a/b" is 4000 tokens', r"maximum context length of \"a\/b\" is 4000 tokens"),
        ("maximum context length, é, is 4,000 tokens", r"maximum context length, \u00e9, is 4,000 tokens"),
    ],
)
async def test_what_a_client_may_have_written_is_learned_by_nobody_else(
    said: str, written: str, make_stages: MakeStages
) -> None:
    stages = await make_stages(*PRUNES)
    plain = read_session(40)
    for marked, window in (
        (plain.body.replace(b"You are a coding agent.", written.encode()), 8000),
        (plain.body, 4000),
    ):
        overflow = Overflow(Kind.PROMPT, f"Invalid value, {said}.", limit=4000)
        first = await stages.attempt(CHAT.read(marked))
        second = await recover(stages.services, first, overflow, make_reply())
        assert second.lesson.is_certain is (window == 4000)
        await learn_from_retry(stages.services, second, second.lesson, Opening(200))
        assert await _window_of(stages) == window


async def test_a_guess_is_learned_once_it_has_gone_through(make_stages: MakeStages) -> None:
    """It is not learned before that, and not if the second attempt is refused or fails."""
    stages = await make_stages(*PRUNES)
    second = await recover(stages.services, await stages.attempt(read_session(40)), UNSAID, make_reply())
    assert not second.lesson.is_certain
    guess = second.lesson.window_tokens
    assert guess is not None
    for opening, window in (
        (Opening(500), 8000),
        (Opening(400, overflow=Overflow(Kind.COMPLETION)), 8000),
        (Opening(200), guess),
        (Opening(400, overflow=SAID), 4000),  # a second refusal teaches, too
    ):
        await learn_from_retry(stages.services, second, second.lesson, opening)
        assert await _window_of(stages) == window


# Requests that an upstream refuses for thinking that does not fit what trimtab has changed.

PATH = "/v1/messages"
REFUSAL = "messages.1.content.0: Invalid `signature` in `thinking` block."
LONG = "\n".join(f"line {number} of a long log" for number in range(2000))
SHORT = ("defaults.max_tool_result_tokens=500",)


def write_body(steps: int = 1, model: str = "claude-opus-5-5") -> dict[str, Any]:
    """A session whose results are longer than trimtab forwards them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the logs."}]
    for step in range(steps):
        thought = {"type": "thinking", "thinking": f"so {step}", "signature": "c2VhbA=="}
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": LONG}
        messages += [{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    return {"model": model, "max_tokens": 500, "messages": messages}


def is_changed(recorded: Recorded) -> bool:
    """Whether a request is not what the client wrote, and does not allow that thinking is dropped."""
    return b"omitted" in recorded.body and b"drop_block" not in recorded.body


@pytest.fixture
def send(client, upstream: FakeUpstream, start_proxy):
    """A function that starts a proxy before such an upstream, and returns one that sends a body through it."""

    async def begin(*settings: str, refuses: Any = is_changed) -> Any:
        plain = upstream.answer
        proxy = await start_proxy(*SHORT, *settings)

        async def answer(recorded: Recorded, request: Any) -> Any:
            return refuse(REFUSAL) if refuses(recorded) else await plain(recorded, request)

        upstream.answer = answer

        async def send_one(body: dict[str, Any]) -> int:
            upstream.requests.clear()
            response, _ = await post(client, proxy.url + PATH, body)
            return response.status

        return send_one

    return begin


async def test_what_is_refused_for_a_change_goes_out_as_the_client_wrote_it(send, upstream: FakeUpstream):
    send_one, body = await send("defaults.context_window=400000"), write_body()
    assert await send_one(body) == 200
    assert [is_changed(one) for one in upstream.requests] == [True, False]
    assert upstream.requests[1].json == body

    assert await send_one(write_body(2)) == 200
    assert [b"drop_block" in one.body for one in upstream.requests] == [True]

    other = write_body()
    other["messages"][0]["content"] = "Read the other logs."
    assert await send_one(other) == 200
    assert len(upstream.requests) == 2


async def test_what_does_not_fit_as_the_client_wrote_it_may_lose_thinking(send, upstream: FakeUpstream):
    send_one = await send("defaults.context_window=12000", "defaults.completion_reserve=1000")
    assert await send_one(write_body()) == 200
    assert [b"drop_block" in one.body for one in upstream.requests] == [False, True]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-6"])
async def test_a_refusal_of_the_clients_own_bytes_is_the_clients(model, send, upstream: FakeUpstream):
    send_one = await send("defaults.context_window=400000", refuses=lambda _: True)
    for _ in range(2):
        assert await send_one(write_body(model=model)) == 400
        assert [b"drop_block" in one.body for one in upstream.requests] == [False, False]
