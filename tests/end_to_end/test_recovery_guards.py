"""What a refusal must not cause: a truncated response, harm to other clients, or repeated refusals."""

from typing import Any

import orjson
from aiohttp import web
from support.client import post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session
from upstreams.recording import Recorded, completion, stream

WINDOW = 16_000

pytestmark = each_dialect


def _session(dialect: Dialect, steps: int = 60, **members: object) -> dict[str, Any]:
    session = make_session(steps)
    return dialect.write(session["messages"][:-1], session["tools"], model="strict-model", **members)


def _refusal(message: str) -> bytes:
    return orjson.dumps({"error": {"message": message}})


TOO_LONG = _refusal(f"This model's maximum context length is {WINDOW} tokens.")


class Strict:
    """Refuses prompts above a number of bytes, with a configurable response."""

    def __init__(self, max_bytes: int = 50_000, **answer: Any) -> None:
        self.max_bytes = max_bytes
        self.answer = {"status": 400, "body": TOO_LONG, "content_type": "application/json", **answer}
        self.refused = 0

    async def __call__(self, recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        dialect, body = recorded.dialect, recorded.json
        if len(recorded.body) + 4 * body.get(dialect.completion_limit, 0) > self.max_bytes:
            self.refused += 1
            return web.Response(**self.answer)
        if body.get("stream"):
            return await stream(request, *["All good. "] * 50, dialect=dialect)
        return completion(dialect=dialect)


async def _metrics(client: Any, proxy: Any, name: str) -> list[str]:
    text = await (await client.get(proxy.url + "/metrics")).text()
    return [line for line in text.splitlines() if line.startswith(name)]


def _windows_learned(log: Any) -> list[int]:
    lines = [line for line in log.lines if line["event"] == "policy_changed"]
    return [line["after"] for line in lines if line["cause"] == "window"]


async def test_a_refusal_that_tells_its_length_does_not_cut_the_second_stream(dialect, client, upstream, start_proxy):
    """The Content-Length of a refusal inside a stream is not forwarded with the stream of the second attempt."""
    body = b": wait\n\ndata: " + TOO_LONG + b"\n\n"
    upstream.answer = Strict(status=200, body=body, content_type="text/event-stream")
    proxy = await start_proxy()
    response, answer = await post(client, proxy.url + dialect.path, _session(dialect, stream=True))
    assert response.status == 200
    assert answer == b"".join(dialect.write_events(*["All good. "] * 50))
    assert "Content-Length" not in response.headers


async def test_a_window_that_the_upstream_tells_is_not_guessed_at(dialect, client, upstream, start_proxy, log):
    upstream.models = orjson.dumps({"data": [{"id": "strict-model", "max_model_len": 64_000}]})
    upstream.answer = Strict(body=_refusal("Input is too long for requested model."))
    proxy = await start_proxy()
    await settle_questions(proxy)
    response, _ = await post(client, proxy.url + dialect.path, _session(dialect))
    assert response.status == 200
    assert set(_windows_learned(log)) <= {64_000}


async def settle_questions(proxy: Any) -> None:
    """Wait until no upstream is being asked."""
    await proxy.services.models.settle()


async def test_a_refusal_that_stands_saves_nothing(dialect, client, upstream, start_proxy):
    """The model's name does not become a label either."""
    body = b"data: " + TOO_LONG + b"\n\n"
    upstream.answer = Strict(max_bytes=0, status=200, body=body, content_type="text/event-stream")
    proxy = await start_proxy()
    await post(client, proxy.url + dialect.path, _session(dialect, stream=True))
    assert await _metrics(client, proxy, "trimtab_tokens_saved_total{") == []
    assert await _metrics(client, proxy, "trimtab_cuts_total{") == []
    assert 'model="other"' in (await _metrics(client, proxy, "trimtab_requests_total{"))[0]
