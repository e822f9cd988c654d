"""A server that plays trimtab's pages: the real files of the page, with the headers that trimtab sends, and JSON.

Law: it answers what the API promises, from made-up sessions that a test may change.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from browser.examples import CHANGES, Session, make_timeline, sum_up

PAGE = Path(__file__).parents[2] / "proxy/server/page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass
class Stub:
    """The server's state.

    now: the end of all sessions, in seconds since 1970. refuses: the status of every answer of the API, or 0.
    closed: what is refused with 403.
    keeps_text: whether requests have text. changes: those of each request.
    deleted: the erased sessions, with query and header. compacted: what was asked to be cut, with the header.
    """

    now: float
    sessions: list[Session]
    url: str = ""
    refuses: int = 0
    closed: set[str] = field(default_factory=set)
    keeps_text: bool = True
    alarms: list[dict[str, str]] = field(default_factory=list)
    notes: list[dict[str, str]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=lambda: CHANGES)
    deleted: list[tuple[str, str, str | None]] = field(default_factory=list)
    compacted: list[tuple[list[str], str | None]] = field(default_factory=list)
    listeners: list[asyncio.Queue[bytes | None]] = field(default_factory=list)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """All requests, newest first."""
        return sorted((turn for one in self.sessions for turn in one.turns), key=lambda turn: -turn["at"])

    def send(self, name: str, data: object) -> None:
        """Send an event to all pages that listen."""
        for listener in self.listeners:
            listener.put_nowait(b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data)))

    def hang_up(self) -> None:
        """End every stream of events."""
        for listener in self.listeners:
            listener.put_nowait(None)

    def keep_newest(self, number: int) -> None:
        """Drop all but the newest requests of each session, so that tables are short."""
        for one in self.sessions:
            del one.turns[:-number]

    def keep_uncut(self) -> None:
        """Drop all turns of the first session from the first move of its cut on."""
        turns = self.sessions[0].turns
        first = next(index for index, turn in enumerate(turns) if turn["cut_moved"])
        del turns[first:]

    def overview(self) -> dict[str, Any]:
        """All that the overview shows."""
        turns = self.turns
        models = sorted({turn["label"] for turn in turns})
        clients = sorted({turn["client"] for turn in turns} - {""})
        by_model = [{"name": name, **sum_up([turn for turn in turns if turn["label"] == name])} for name in models]
        by_client = [{"name": name, **sum_up([turn for turn in turns if turn["client"] == name])} for name in clients]
        return {
            "version": "0.1.0",
            "started_at": self.now - 3 * 3600,
            "now": self.now,
            "workers": 2,
            "mode": "enforce",
            "upstreams": ["api.openai.com"],
            "keeps_text": self.keeps_text,
            "alarms": self.alarms,
            "notes": self.notes,
            "totals": sum_up(turns),
            "week": {"days": 7, "unpriced_requests": 0} | sum_up(turns),
            "by_model": by_model,
            "by_client": by_client,
        }

    def answer(self, parts: list[str], query: dict[str, str]) -> dict[str, Any] | None:
        """The JSON at a path below api/."""
        match parts:
            case ["overview"]:
                return self.overview()
            case ["timeline"]:
                return make_timeline(self.now, self.turns, query)
            case ["requests"]:
                return self._list(query)
            case ["requests", wanted]:
                found = next((turn for turn in self.turns if turn["request_id"] == wanted), None)
                return found and {"event": found, "text": self._text(found)}
            case ["sessions", *names]:
                return self._show_sessions(names, query)
        return None

    def _show_sessions(self, names: list[str], query: dict[str, str]) -> dict[str, Any] | None:
        if not names:
            return self._list_sessions(query)
        one = next((one for one in self.sessions if one.id == names[0]), None)
        return one and {"session": one.show(), "turns": one.turns[-500:], "more": len(one.turns) > 500}

    def _list_sessions(self, query: dict[str, str]) -> dict[str, Any]:
        shown = [one.show() for one in self.sessions]
        columns = {"model": "model", "client": "client", "outcome": "last_outcome"}
        choices = {name: sorted({one[key] for one in shown} - {""}) for name, key in columns.items()}
        for name, key in columns.items():
            shown = [one for one in shown if query.get(name, one[key]) == one[key]]
        for word in query.get("words", "").lower().split():
            shown = [one for one in shown if word in " ".join(map(str, one.values())).lower()]
        key = {"last": "last_at", "requests": "requests", "session": "title"}[query.get("sort", "last")]
        shown.sort(key=lambda one: one[key], reverse=query.get("order", "desc") == "desc")
        limit = int(query["limit"])
        start = limit * (int(query.get("page", "1")) - 1)
        return {"sessions": shown[start : start + limit], "total": len(shown), "choices": choices}

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        found = self.turns
        for key in ("outcome", "model", "client", "session"):
            found = [turn for turn in found if query.get(key, turn[key]) == turn[key]]
        ids = [turn["request_id"] for turn in found]
        start = ids.index(query["before"]) + 1 if "before" in query else 0
        stop = start + int(query["limit"])
        return {"requests": found[start:stop], "more": stop < len(found)}

    def _text(self, turn: dict[str, Any]) -> dict[str, Any] | None:
        if not self.keeps_text:
            return None
        summary = CHANGES[0]["after"] if turn["summary_id"] else ""
        changes = self.changes if turn["sent_tokens"] != turn["original_tokens"] else []
        return {"sentences": turn["story"], "changes": changes, "summary": summary}


async def _answer_api(stub: Stub, request: web.Request) -> web.StreamResponse:
    parts = request.match_info["path"].split("/")
    if stub.refuses or parts[0] in stub.closed:
        told = {"error": {"message": "this page requires admin_token", "type": "authentication_error", "code": None}}
        return web.json_response(told, status=stub.refuses or 403)
    if parts == ["events"]:
        return await _send_events(stub, request)
    if request.method == "DELETE":
        stub.deleted.append((parts[1], request.query_string, request.headers.get("x-trimtab-dashboard")))
        if not request.query_string:
            stub.sessions = [one for one in stub.sessions if one.id != parts[1]]
        return web.Response(status=204)
    if request.method == "POST":
        stub.compacted.append((parts[1:], request.headers.get("x-trimtab-dashboard")))
        return web.Response(status=204)
    found = stub.answer(parts, dict(request.query))
    if found is None:
        return web.json_response({"error": {"message": "no such thing", "type": "x", "code": None}}, status=404)
    return web.json_response(body=orjson.dumps(found))


async def _send_events(stub: Stub, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    mine: asyncio.Queue[bytes | None] = asyncio.Queue()
    stub.listeners.append(mine)
    try:
        await response.write(b": hello\n\n")
        while (chunk := await mine.get()) is not None:
            await response.write(chunk)
    finally:
        stub.listeners.remove(mine)
    return response


async def _answer_file(request: web.Request) -> web.StreamResponse:
    path = PAGE / (request.match_info["name"] or "index.html")
    if not path.is_file():
        return web.Response(status=404)
    return web.Response(body=path.read_bytes(), content_type=TYPES[path.suffix], charset="utf-8", headers=HEADERS)


@asynccontextmanager
async def run_stub(stub: Stub, prefix: str = "/trimtab") -> AsyncIterator[Stub]:
    """Run the server on a free port. `stub.url` is the page's address."""

    async def answer_api(request: web.Request) -> web.StreamResponse:
        return await _answer_api(stub, request)

    app = web.Application()
    app.router.add_route("*", prefix + "/api/{path:.+}", answer_api)
    app.router.add_get(prefix + "/{name:.*}", _answer_file)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    stub.url = f"http://127.0.0.1:{port}{prefix}/"
    try:
        yield stub
    finally:
        stub.hang_up()
        await runner.cleanup()
