"""The fake upstream in Python, for machines without a compiler. It does what native/upstream.c does.

Law: paths, counts and bytes of the events are those of the C program.
"""

import argparse
import asyncio
from dataclasses import asdict, dataclass

import orjson
import uvloop
from aiohttp import web

_NOTE = (
    "## 1. Progress and decisions\nRead the parser and the loader, fixed the loader's retry.\n"
    "## 2. Constraints and preferences\nNone.\n## 3. Remaining\nTwo tests still fail.\n"
    "## 4. Exact data\ntests/test_loader.py"
)
_CHUNK = {
    "id": "chatcmpl-bench",
    "object": "chat.completion.chunk",
    "created": 1760000000,
    "model": "gpt-4o",
    "service_tier": "default",
    "system_fingerprint": "fp_bench",
}


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    events: int = 0
    body_bytes: int = 0


class PlainUpstream:
    """Answers at once, or with a stream that has pauses."""

    def __init__(self) -> None:
        self._counts = _Counts()
        self._events = 200
        self._pause_seconds = 0.02

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request."""
        body = await request.read()
        if request.method != "POST":
            return self._answer_get(request)
        self._counts.requests += 1
        self._counts.body_bytes += len(body)
        if not _has(body, b'"stream":true'):
            return _write_json(_complete(len(body)))
        return await self._stream(request, wants_usage=_has(body, b'"include_usage":true'))

    def _answer_get(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/control":
            self._events = int(request.query["events"])
            self._pause_seconds = int(request.query["pause_us"]) / 1e6
            return _write_json({})
        if request.path == "/counts":
            return _write_json(asdict(self._counts))
        return _write_json({"object": "list", "data": [{"id": "gpt-4o", "object": "model"}]})

    async def _stream(self, request: web.BaseRequest, *, wants_usage: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for number in range(self._events):
            if number:
                await asyncio.sleep(self._pause_seconds)
            self._counts.events += 1
            await response.write(_write_event([_choose({"content": " word"})]))
        await response.write(_write_event([_choose({}, "stop")]))
        if wants_usage:
            usage = {"prompt_tokens": 40, "completion_tokens": self._events, "total_tokens": self._events + 40}
            await response.write(_write_event([], usage=usage))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _has(body: bytes, member: bytes) -> bool:
    return member in body or member.replace(b":", b": ") in body


def _choose(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _write_event(choices: list[dict[str, object]], **others: object) -> bytes:
    return b"data: " + orjson.dumps({**_CHUNK, "choices": choices, **others}) + b"\n\n"


def _complete(body_bytes: int) -> dict[str, object]:
    prompt_tokens = body_bytes // 4 + 1
    message = {"role": "assistant", "content": _NOTE, "refusal": None}
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1760000000,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 60, "total_tokens": prompt_tokens + 60},
        "system_fingerprint": "fp_bench",
    }


def _write_json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


async def serve(port: int) -> None:
    """Listen, print the port, and run forever."""
    runner = web.ServerRunner(web.Server(PlainUpstream().answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free port")
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
