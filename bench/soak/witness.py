"""An upstream for honest clients beside hostile ones: it reports what it received, and can be provoked.

    python -m bench.soak.witness

Prints its port when it listens. `/soak/seen` is JSON: the digest of each body by the id of its request. It refuses as
real servers do: a prompt longer than its window by its own count (which includes fields that nobody else reads), an
unknown role in the client's own words, and a body beyond a gateway's limit without an explanation.
"""

import asyncio
from functools import partial
from hashlib import sha256

import orjson
import uvloop
from aiohttp import web

from bench.soak.faults import ID_HEADER

WINDOW_TOKENS = 120_000
CHARS_PER_TOKEN = 4
MAX_BODY_BYTES = 1_500_000
ROLES = frozenset({"system", "user", "assistant", "tool"})
LARGE_ANSWER = "w " * 1_500_000


def judge(body: bytes) -> str | None:
    """Why a request is refused; None if it is not."""
    asked = orjson.loads(body)
    strange = next((row["role"] for row in asked["messages"] if row["role"] not in ROLES), None)
    if strange is not None:
        return f"Only user, assistant, system and tool roles are supported, got {strange}."
    tokens = len(body) // CHARS_PER_TOKEN
    if tokens > WINDOW_TOKENS:
        return f"This model's maximum context length is {WINDOW_TOKENS} tokens. However, you requested {tokens} tokens."
    return None


async def serve(seen: dict[str, str], request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/soak/seen":
        return web.Response(body=orjson.dumps(seen), content_type="application/json")
    if request.method != "POST":
        return web.Response(status=404)
    body = await request.read()
    number = request.headers.get(ID_HEADER)
    if number is not None:
        seen[number] = sha256(body).hexdigest()
    if len(body) > MAX_BODY_BYTES:
        return web.Response(status=413)
    reason = judge(body) if request.path.endswith("/chat/completions") else None
    if reason is not None:
        return web.Response(status=400, body=orjson.dumps({"error": {"message": reason, "code": 400}}))
    said = LARGE_ANSWER if b'"large answer"' in body else "All good."
    usage = {"prompt_tokens": len(body) // CHARS_PER_TOKEN, "completion_tokens": 3}
    answer = {
        "id": "x",
        "object": "chat.completion",
        "usage": usage,
        "choices": [{"index": 0, "message": {"content": said}}],
    }
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def main() -> None:
    server = web.Server(partial(serve, {}), access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
