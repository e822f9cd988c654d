"""A prompt that the upstream refuses for its length is sent again, shorter; the client sees one answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from asking import post, settle
from fake_upstream import Recorded, completion, stream
from sessions import make_session, requests_of

from proxy.counter import load_encoding
from rules.families import O200K

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "overflow_errors.jsonl"
END = {"role": "assistant", "content": "It is mended."}
SESSION_STEPS, SESSION_TOKENS = 320, 75_000
"""Of a long one: not enough for a cut of our own."""
WINDOW = 16_000
"""Of the upstream that refuses; ours is taken to be 128,000."""
WORDS = "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."


def openai_error(tokens: int) -> tuple[int, bytes]:
    """As OpenAI says it."""
    message = WORDS.format(limit=WINDOW, tokens=tokens)
    return 400, orjson.dumps({"error": {"message": message, "code": "context_length_exceeded"}})


@dataclass
class Strict:
    """An upstream that refuses what is longer than `window`, by `refuse`; `ratio` of its tokens make one of ours.

    `seen` are the prompts' tokens by its own count, refused ones negative.
    """

    refuse: Callable[[int], tuple[int, bytes]] = openai_error
    window: int = WINDOW
    ratio: float = 1.0
    as_event: bool = False
    reports: bool = True
    seen: list[int] = field(default_factory=list)

    async def __call__(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        tokens = round(self.ratio * len(_encoding.encode(recorded.body.decode(), disallowed_special=())))
        streams = recorded.json.get("stream") is True
        if tokens > self.window:
            self.seen.append(-tokens)
            status, body = self.refuse(tokens)
            if self.as_event and streams:
                return await _stream_bytes(request, b": wait\n\n", b"data: " + body + b"\n\n")
            return web.Response(body=body, status=status, content_type="application/json")
        self.seen.append(tokens)
        if recorded.asks_for_summary:
            return completion("SUMMARY of the work so far.", prompt_tokens=tokens, completion_tokens=7)
        if streams:
            return await stream(request, "All ", "good.")
        return completion(**({"prompt_tokens": tokens, "completion_tokens": 3} if self.reports else {}))

    @property
    def refused(self) -> int:
        """How many were."""
        return sum(1 for tokens in self.seen if tokens < 0)


_encoding = load_encoding(O200K)


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
    body = _session() | {"stream": streams}
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    assert response.status == 200
    assert b"All " in answer
    assert b"good." in answer
    assert strict.refused == 1
    assert len(upstream.chats) == 2
    assert upstream.chats[0].body == orjson.dumps(body)
    sent = response.headers["x-trimtab-tokens"]
    assert f"limit={WINDOW - WINDOW // 4}" in sent
    assert await _retries(client, proxy) == {"recovered": 1.0}


async def test_a_whole_session_meets_one_refusal(client, upstream, start_proxy, log):
    """What was learned holds for the requests that follow, and none of them is refused."""
    upstream.answer = strict = Strict()
    proxy = await start_proxy()
    for body in _requests(120):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
        await settle(proxy)
    assert strict.refused == 1
    changes = [line for line in log.lines if line["event"] == "policy_changed"]
    assert [line["after"] for line in changes if line["cause"] == "window"] == [WINDOW]


async def test_a_vocabulary_that_makes_more_tokens_is_learned_from_the_refusal(client, upstream, start_proxy):
    """The upstream says how many tokens it counted: by that the next attempt fits."""
    upstream.answer = strict = Strict(ratio=3.0, window=32_000, reports=False)
    text = "prompt is too long: {} tokens > 32000 maximum"
    strict.refuse = lambda tokens: (400, orjson.dumps({"error": text.format(tokens)}))
    proxy = await start_proxy("defaults.context_window=32000")
    for body in _requests(60):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
        await settle(proxy)
    assert strict.refused == 1


def _rows() -> list[dict[str, Any]]:
    if not RECORDED.exists():
        return []
    rows = [orjson.loads(line) for line in RECORDED.read_bytes().splitlines()]
    return [row for row in rows if row["status"] != 200 and row["confidence"] not in {"inferred", "partial"}]


_HOPELESS = {
    "openai (single string too long)",
    "sglang (max_completion_tokens > context)",
    "azure-openai (max_tokens counted)",
    "together (TGI-era text)",
}
"""No shorter prompt would help: the completion alone takes the window, or one string is too long."""


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded overflow errors are not here")
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["server"])
async def test_every_recorded_refusal_is_recovered_from(row, streams, client, upstream, start_proxy):
    """The upstream refuses in its own words, with its own numbers, everything longer than its own limit."""
    window = row["limit"] if row["limit"] and row["limit"] < SESSION_TOKENS else 60_000

    def refuse(tokens: int) -> tuple[int, bytes]:
        if row["server"] in _HOPELESS:
            return row["status"], row["body"].encode()
        text = row["body"].replace(str(row["limit"]), str(window)).replace(str(row["requested"]), str(tokens))
        return row["status"], text.encode()

    upstream.answer = strict = Strict(refuse, window=window, as_event=streams and row["body"] != "")
    proxy = await start_proxy()
    body = _session(SESSION_STEPS) | {"stream": streams}
    response, answer = await post(client, proxy.url + "/v1/chat/completions", body)
    if row["server"] in _HOPELESS:
        assert await _retries(client, proxy) == {"hopeless": 1.0}
        return
    assert (response.status, strict.refused) == (200, 1), (row["server"], strict.seen)
    assert b"good." in answer
    assert await _retries(client, proxy) == {"recovered": 1.0}
