"""A key that is planted wherever a client can write is found in nothing that the proxy keeps or tells."""

import base64
import gzip
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.collector import run_collector
from support.sessions import make_session
from upstreams.recording import completion

from trimtab.proxy.config.load import load_config
from trimtab.proxy.server.app import Proxy, run_proxy

OWN = "sk-proj-9mQx7TzLw2Rb5KcVn8Yd3FgHs6JpAe1UoIq4"
"""The key of the client that sends the requests."""
CONFIGURED = {
    "another client": "sk-2vXb8NqL4mZc6RtY1wPk9JhGf3DsAa7EuToQ5i",
    "upstream": "sk-ant-api03-Kd7Wm2Xp9Zq4Lr8Vt5Yb3Nc6Hf1JgSaUe",
    "other upstream": "gsk_5Tn8Rw3Qz7Xk2Mv9Lb4Hc6Yp1JdFgAsUoEi",
    "admin": "adm-8Jq3Wz6Xn1Rk7Tm4Pv9Lb2Yc5HdFgAsUoEi",
    "forward proxy": "px7Lw2Rb5KcVn8Yd3FgHs6",
    "environment": "ev4Nc6Hf1JgSaUe8Wm2Xp9",
    "store": "rd1JdFgAsUoEi7Xk2Mv9Lb",
}
PIECE_CHARS = 10


def list_pieces(key: str) -> list[bytes]:
    """The beginning and the end of what is random in a key."""
    return [
        key[-16 : -16 + PIECE_CHARS].encode(),
        key[-PIECE_CHARS:].encode(),
        base64.b64encode(b"ab" + key.encode())[6:40],
    ]


def make_settings(folder: Path, collector: str, upstream: str, *, with_redis: bool) -> tuple[str, ...]:
    others = {
        "other": {
            "base_url": "http://127.0.0.1:9/v1",
            "api_key": CONFIGURED["other upstream"],
            "proxy": f"http://user:{CONFIGURED['forward proxy']}@127.0.0.1:9",
        }
    }
    return (
        *SMALL,
        "listen=127.0.0.1:0",
        "prices={}",
        "defaults.max_tool_result_tokens=200",
        f"upstream.base_url={upstream}",
        f"upstream.api_key={CONFIGURED['upstream']}",
        f"upstreams={orjson.dumps(others).decode()}",
        f"client_keys={orjson.dumps({'alice': OWN, 'bob': CONFIGURED['another client']}).decode()}",
        f"admin_token={CONFIGURED['admin']}",
        f"store=redis://:{CONFIGURED['store']}@127.0.0.1:9/0" if with_redis else f"store=sqlite:///{folder}/store",
        f"record.dir={folder}/recordings",
        f"tracing.otlp_endpoint={collector}",
        "dashboard.keep_text=true",
    )


async def answer_with(**changes: Any) -> web.Response:
    """An answer of the upstream."""
    answer = completion(prompt_tokens=9, completion_tokens=3)
    return web.json_response(orjson.loads(answer.body) | changes)


def make_bodies(key: str) -> Iterator[dict[str, Any] | bytes]:
    """Requests with a key wherever text may be, and where a result is cut through it."""
    session = make_session(40)
    messages = session["messages"]
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            message["content"] = "word " * at + f"{key} " * 100 + f"key={quote(key)} {key}\nend"
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = orjson.dumps({"path": f"/{key}/{at}", key: {key: [key]}}).decode()
            call["function"]["name"] = f"t_{key}"[:64]
    url = "data:text/plain;base64," + base64.b64encode(b"ab" + key.encode() + b"cd").decode()
    parts = [
        {"type": "text", "text": f"{key[:20]}"},
        {"type": "text", "text": key},
        {"type": "text", "text": f"see https://x.example/?api_key={key}"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    messages.append({"role": "user", "content": parts, "name": key})
    tools = [{"type": "function", "function": {"name": f"t_{key}"[:64], "description": key, "parameters": {key: key}}}]
    more = {"user": key, "metadata": {key: key}, "prompt_cache_key": key, "tools": tools}
    yield {"model": "m", **session, **more}
    yield {"model": f"m-{key}", "messages": messages[:2], key: key}
    escaped = "".join(f"\\u{ord(each):04x}" for each in key)
    yield orjson.loads(
        orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "HERE"}]}).replace(
            b"HERE", escaped.encode()
        )
    )


async def send_all(client: Any, proxy: Proxy, key: str) -> None:
    """Send the key in bodies, headers, queries and paths."""
    query = f"?api_key={key}&x={quote(key)}"
    ways = [(query, {}), ("", {}), (query, {"x-trimtab-profile": key}), ("", {"x-trimtab-mode": key})]
    for number, body in enumerate(make_bodies(key)):
        for asked, odd in ways if number else ways[:1]:  # the first one is long
            headers = {"authorization": f"Bearer {OWN}", "x-note": key, "user-agent": key, **odd}
            await post(client, f"{proxy.url}/v1/chat/completions{asked}", body, **headers)
    for path in (f"/v1/models/{key}?key={key}", f"/v1/{key}", f"/{key}/v1/chat/completions"):
        for credential in (OWN, key):
            await client.get(proxy.url + path, headers={"authorization": f"Bearer {credential}"})
    await settle(proxy)
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.past.settle()
    await proxy.services.recordings.settle()


def read_files(folder: Path) -> dict[str, bytes]:
    """Everything that was written to disk."""
    found = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in found.items()}


@pytest.mark.parametrize("whose", ["its own", *CONFIGURED])
async def test_a_planted_key_is_found_nowhere(whose, client, upstream, compactors, log, tmp_path, capfd):  # noqa: PLR0917 - fixtures
    key = OWN if whose == "its own" else CONFIGURED[whose]
    environment = {"HTTPS_PROXY": f"http://user:{CONFIGURED['environment']}@127.0.0.1:9"}
    upstream.answer = lambda *_: answer_with(model=f"m-{key}")
    async with run_collector() as collector:
        settings = make_settings(tmp_path, collector.url, upstream.url, with_redis=whose == "store")
        config = load_config(settings=settings, environment=environment)
        async with run_proxy(config, log, compactors) as proxy:
            await send_all(client, proxy, key)
            kept = {name: page async for name, page in read_pages(client, proxy)}
        kept["spans"] = b"".join(collector.bodies)
    kept |= {"log": repr(log.lines).encode(), "screen": repr(capfd.readouterr()).encode()} | read_files(tmp_path)
    assert b"m-***" in kept["spans"]
    assert len([name for name in kept if name.endswith(".gz")]) > 4
    assert len([name for name, content in kept.items() if b"***" in content]) > 4
    found = {name: piece for name, content in kept.items() for piece in list_pieces(key) if piece in content}
    assert not found


async def read_pages(client: Any, proxy: Proxy) -> AsyncIterator[tuple[str, bytes]]:
    """Every page of the proxy's own, with its name."""
    headers = {"authorization": f"Bearer {CONFIGURED['admin']}"}
    for name in ("overview", "timeline", "requests", "sessions", "models"):
        async with client.get(f"{proxy.url}/trimtab/api/{name}", headers=headers) as answer:
            body = await answer.read()
            yield name, body
        listed = orjson.loads(body) if answer.status == 200 else {}
        for each in listed.get(name, ()) if isinstance(listed, dict) else ():
            one = each.get("request_id") or each.get("session") or each.get("id")
            async with client.get(f"{proxy.url}/trimtab/api/{name}/{one}", headers=headers) as answer:
                yield f"{name}/{one}", await answer.read()
    for path in ("/metrics", "/trimtab/", "/trimtab/health", "/trimtab/ready"):
        async with client.get(proxy.url + path, headers=headers) as answer:
            yield path, await answer.read()
