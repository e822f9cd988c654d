"""Runs the real command once, sends it all scenes, and collects what it tells of them, wherever it does."""

import asyncio
import gzip
import signal
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from names.scenes import ADMIN_TOKEN, KEY, SCENES, SETTINGS, Scene, answer
from programs.serving import read_log, serving
from support.collector import Received, run_collector
from upstreams.recording import run_upstream

PATIENCE_SECONDS = 120.0
"""Nothing takes so long, however busy the machine is."""
CUT = "cut with a summary"
"""The scene whose pages are looked at."""
MODELS = b'{"data": [{"id": "plain", "max_model_len": 8000}]}'
ADMIN = {"authorization": f"Bearer {ADMIN_TOKEN}", "x-trimtab-dashboard": "1"}
API = "/trimtab/api"


@dataclass
class Told:
    """What was told.

    lines: the log's lines of the scenes, and `other_lines` the rest. headers: of the answers.
    pages: JSON by path, with SESSION and ID for ids. statuses: by method and path, with the content type.
    recordings: their content; those of calls for summaries are in `calls`.
    """

    folder: Path
    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    other_lines: list[dict[str, Any]] = field(default_factory=list)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    pages: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, Any]] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)
    metrics: str = ""
    spans: list[Received] = field(default_factory=list)
    recordings: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def settings(self) -> tuple[str, ...]:
        """Those of the run."""
        given = (*SETTINGS, f"store=sqlite:///{self.folder}/store.sqlite3", f"record.dir={self.folder}/recordings")
        return tuple(part for setting in given for part in ("--set", setting))


async def run(folder: Path) -> Told:
    """Run everything."""
    told = Told(folder)
    async with run_upstream() as upstream, run_collector() as collector, asyncio.timeout(PATIENCE_SECONDS):
        upstream.answer, upstream.models = answer, MODELS
        traces = ("--set", f"tracing.otlp_endpoint={collector.url}")
        async with serving(*told.settings, *traces, "--upstream", upstream.url) as (process, url):
            root = url.removesuffix("/v1")
            async with aiohttp.ClientSession() as client:
                async with client.get(f"{root}{API}/events", headers=ADMIN) as stream:
                    for scene in SCENES:
                        await _send(told, process, client, root, scene)
                    await _read_events(told, stream)
                await _read_pages(told, client, root)
            process.send_signal(signal.SIGTERM)
            _, rest = await process.communicate()
        told.other_lines += [orjson.loads(line) for line in rest.splitlines()]
        told.spans = collector.spans
    for path in sorted((folder / "recordings").glob("*.json.gz")):
        kept = told.calls if ".call." in path.name else told.recordings
        kept.append(orjson.loads(gzip.decompress(path.read_bytes())))
    return told


async def _send(told: Told, process: Process, client: aiohttp.ClientSession, root: str, scene: Scene) -> None:
    """Send a request, and wait for its log line."""
    headers = {"authorization": f"Bearer {KEY}", **scene.headers}
    method, body = ("POST", orjson.dumps(scene.body)) if scene.body else ("GET", None)
    async with client.request(method, root + scene.path, data=body, headers=headers) as response:
        told.headers[scene.name] = dict(response.headers)
        try:
            answered = await response.read()
        except aiohttp.ClientPayloadError:
            answered = b""
        assert response.status == scene.status, f"{scene.name}: {response.status} {answered[:500]!r}"
    *others, line = await read_log(process, "request", patience_seconds=PATIENCE_SECONDS)
    told.other_lines += others
    told.lines[scene.name] = line


async def _read_events(told: Told, stream: aiohttp.ClientResponse) -> None:
    """Read the dashboard's events until each request has had its own."""
    name = ""
    while sum(one == "request" for one, _ in told.events) < len(SCENES):
        line = (await stream.content.readline()).decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            told.events.append((name, orjson.loads(line.removeprefix("data: "))))


async def _read_pages(told: Told, client: aiohttp.ClientSession, root: str) -> None:
    ids = {"ID": told.lines[CUT]["request_id"]}

    async def ask(path: str, method: str = "GET", headers: dict[str, str] = ADMIN) -> bytes:
        url = root + path.replace("ID", ids["ID"]).replace("SESSION", ids.get("SESSION", ""))
        async with client.request(method, url, headers=headers, allow_redirects=False) as response:
            told.statuses[f"{method} {path}"] = f"{response.status} {response.headers.get('Content-Type', '')}".rstrip()
            return await response.read()

    async def read(path: str) -> Any:
        told.pages[path] = orjson.loads(await ask(API + path))
        return told.pages[path]

    while (await read("/requests/ID"))["text"] is None:
        pass  # asking lets the text be written
    ids["SESSION"] = told.pages["/requests/ID"]["event"]["session"]
    for path in ("/overview", "/timeline?minutes=5", "/requests", "/sessions", "/sessions/SESSION", "/models"):
        await read(path)
    told.metrics = (await ask("/metrics")).decode()
    for path in ("", "/", "/index.html", "/health", "/ready", "/nothing", "/api/nothing", "/api/requests?limit=0"):
        await ask(f"/trimtab{path}")
    await ask("/metrics", headers={**ADMIN, "accept": "application/openmetrics-text"})
    await ask("/trimtab/health", headers={})
    await ask("/trimtab/api/overview?without=key", headers={})
    await ask("/trimtab/api/sessions", "POST")
    await ask("/trimtab/api/sessions/SESSION?text=some", "DELETE")
    await ask("/trimtab/api/sessions/SESSION?text=only", "DELETE")
    await ask("/trimtab/api/sessions/SESSION", "DELETE")
