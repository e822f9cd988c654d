"""A real HTTP server that plays the upstream: it records every request byte for byte, and its responses can be set."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from aiohttp import web
from support.dialects.spoken.all_dialects import find_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect

Handler = Callable[["Recorded", web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request, unchanged: the path as written, the headers in order, the bytes of the body."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self):
        """The body, decoded from JSON."""
        return orjson.loads(self.body)

    @property
    def dialect(self) -> Dialect:
        """The dialect of requests on this path."""
        return find_dialect(self.path)

    @property
    def sha256(self) -> str:
        """The SHA-256 hash of the body."""
        return hashlib.sha256(self.body).hexdigest()

    def header(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    @property
    def asks_for_windows(self) -> bool:
        """Whether trimtab asks for windows and counts: without a User-Agent, which test clients always send."""
        if self.path.endswith(("/tokenize", "/apply-template")):
            return True
        return self.method == "GET" and not self.header("User-Agent") and self.header("Accept") == ["application/json"]

    @property
    def asks_for_summary(self) -> bool:
        """Whether trimtab asks for a summary: by a temperature of 0.2 or by its prompt. Test clients send neither.

        A request with reasoning has no temperature, so the prompt is checked first.
        """
        if b"Write the handoff note, in" in self.body or b"You write the handoff note" in self.body:
            return True
        return self.body.startswith(b"{") and self.json.get("temperature") == 0.2


@dataclass
class FakeUpstream:
    """An upstream that records requests.

    url: the base URL with /v1.
    requests: the requests received, oldest first.
    answer: writes each response; a test may replace it.
    questions: requests for context windows. They are kept here, not in `requests`, unless `answers_questions` is set.
    models: the response to /v1/models, and to llama.cpp's /props; None answers 404.
    """

    url: str = ""
    questions: list[Recorded] = field(default_factory=list)
    models: bytes | None = None
    answers_questions: bool = False
    requests: list[Recorded] = field(default_factory=list)
    answer: Handler = None  # type: ignore[assignment]
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def chats(self) -> list[Recorded]:
        """The requests that come from the client."""
        return [item for item in self.requests if not item.asks_for_summary]

    @property
    def summaries(self) -> list[Recorded]:
        """The requests for summaries, which trimtab makes itself."""
        return [item for item in self.requests if item.asks_for_summary]


def hold_summaries(upstream: FakeUpstream) -> asyncio.Event:
    """Hold back responses to summary requests until the returned event is set. Other responses do not wait."""
    plain, release = upstream.answer, asyncio.Event()

    async def hold(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.asks_for_summary:
            await release.wait()
        return await plain(recorded, request)

    upstream.answer = hold
    return release


def write_note(told: str) -> str:
    """A handoff note in the form that a model writes, with `told` as its first section."""
    return "\n".join(
        (
            f"## 1. Progress and decisions\n{told}",
            "## 2. Constraints and preferences\nNone were named.",
            "## 3. Remaining\nGo on with the next file, then run the tests of the harbour.",
            "## 4. Exact data\n`src/harbour/part_1.py`",
        )
    )


def completion(text: str = "All good.", dialect: Dialect = CHAT, **usage: int) -> web.Response:
    """A response that is not streamed, with `prompt_tokens` and `completion_tokens` if they are given."""
    return web.Response(body=dialect.write_answer(text, **usage), content_type="application/json")


def error(status: int, **fields: object) -> web.Response:
    """An error response in OpenAI's form."""
    return web.Response(body=orjson.dumps({"error": fields}), status=status, content_type="application/json")


async def answer_plainly(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
    """A summary, a stream or a completion, as the request asks, in the dialect of its path."""
    if recorded.method != "POST" or not recorded.body.startswith(b"{"):
        return web.Response(body=recorded.body or b"hello", headers={"X-Up": "1"})
    if recorded.asks_for_summary:
        note = write_note("SUMMARY of the work so far.")
        return completion(note, recorded.dialect, prompt_tokens=1000, completion_tokens=7)
    if recorded.json.get("stream"):
        return await stream(request, "All ", "good.", dialect=recorded.dialect)
    return completion(dialect=recorded.dialect, prompt_tokens=11, completion_tokens=3)


async def stream(request: web.BaseRequest, *texts: str, dialect: Dialect = CHAT) -> web.StreamResponse:
    """Send a stream with one server-sent event for each text."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for sent in dialect.write_events(*texts):
        await response.write(sent)
    await response.write_eof()
    return response


async def break_off(_recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
    """Send half a stream, then abort the connection."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(event("half"))
    request.transport.abort()
    return response


def event(text: str) -> bytes:
    """One chunk of a streamed completion, as an event."""
    return CHAT.write_event(text)


@asynccontextmanager
async def run_upstream() -> AsyncIterator[FakeUpstream]:
    """Run the server on a free port while the block runs."""
    upstream = FakeUpstream(answer=answer_plainly)

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        headers = tuple((name.decode(), value.decode()) for name, value in request.raw_headers)
        recorded = Recorded(request.method, request.raw_path, headers, body)
        if recorded.asks_for_windows and not upstream.answers_questions:
            upstream.questions.append(recorded)
            known = recorded.path.endswith(("/models", "/props")) and upstream.models is not None
            return web.Response(body=upstream.models, status=200) if known else web.Response(status=404)
        upstream.requests.append(recorded)
        upstream.arrived.set()
        try:
            return await upstream.answer(recorded, request)
        except asyncio.CancelledError:
            upstream.cancelled.set()
            raise

    server = web.Server(serve, handler_cancellation=True, auto_decompress=False, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield upstream
    finally:
        await runner.cleanup()
