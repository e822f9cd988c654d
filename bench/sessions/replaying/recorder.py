"""The upstream of the proxies: it records, prices and answers requests.

Law: its answers do not depend on time. A request with the header of the client's turns is a turn; a request of the
proxy itself is a summary. It reports usage as a caching upstream would.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from bench.harness.servers import HOST
from bench.peers.note import write_note
from bench.sessions.ledger import Call, SessionLedger
from bench.sessions.marks import split_marked
from bench.sessions.prompts import count_text

TURN_HEADER = "x-bench-session"
MAX_BODY_BYTES = 64 * 1024 * 1024
_REPLY = "Noted; on to the next step."


@dataclass(slots=True)
class Recorder:
    """One upstream. It serves one session at a time; calls are entered into `ledger`."""

    note_tokens: int
    failing_summaries: bool
    ledger: SessionLedger | None = None
    port: int = 0
    failed_summaries: int = 0
    _open_summaries: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        """Serve on a free port of loopback."""
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self._idle.set()
            yield
        finally:
            await runner.cleanup()

    @property
    def is_idle(self) -> bool:
        """Whether no summary is being written."""
        return self._idle.is_set()

    async def wait_until_idle(self) -> None:
        """Return as soon as no summary is being written."""
        await self._idle.wait()

    async def _answer(self, request: web.Request) -> web.Response:
        if TURN_HEADER in request.headers:
            return self._answer_turn(await request.read())
        self._open_summaries += 1
        self._idle.clear()
        try:
            return self._answer_summary(await request.read())
        finally:
            self._open_summaries -= 1
            if not self._open_summaries:
                self._idle.set()

    def _answer_turn(self, body: bytes) -> web.Response:
        ledger = self._ledger()
        return _complete(_REPLY, ledger.add_turn(*split_marked(body)))

    def _answer_summary(self, body: bytes) -> web.Response:
        if self.failing_summaries:
            self.failed_summaries += 1
            return web.Response(status=500, body=b'{"error":{"message":"overloaded","type":"server_error"}}')
        parts, marks = split_marked(body)
        wanted: dict[str, Any] = orjson.loads(body)
        limit = wanted.get("max_tokens") or wanted.get("max_completion_tokens") or self.note_tokens
        note = write_note("\n".join(part.text for part in parts[1:]), min(self.note_tokens, limit))
        return _complete(note, self._ledger().add_summary(parts, count_text(note), marks))

    def _ledger(self) -> SessionLedger:
        if self.ledger is None:
            message = "a request came in while no session was replayed"
            raise RuntimeError(message)
        return self.ledger


def _complete(text: str, call: Call) -> web.Response:
    completion_tokens = call.completion_tokens or count_text(text)
    usage = {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": call.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": call.cached_tokens, "cache_write_tokens": call.written_tokens},
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    completion = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 0, "model": "bench"}
    return web.Response(
        body=orjson.dumps({**completion, "choices": [choice], "usage": usage}), content_type="application/json"
    )
