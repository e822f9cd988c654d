"""What `/trimtab/api/models` shows, and which models it hides."""

import msgspec
import orjson
import pytest
from support.client import CHAT, SMALL, post
from support.events import read_events
from support.sessions import make_session
from upstreams.recording import FakeUpstream, error

from trimtab.proxy.server.admin.api import write_models
from trimtab.proxy.server.admin.shapes import diff_lines
from trimtab.proxy.server.app import Proxy


async def _look(client, proxy: Proxy) -> dict:
    async with client.get(proxy.url + "/trimtab/api/models") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        return orjson.loads(await response.read())


async def _ask(client, proxy: Proxy, model: str, **headers: str) -> None:
    await post(client, proxy.url + "/v1/chat/completions", CHAT | {"model": model}, **headers)


def _list(**windows: int) -> bytes:
    return orjson.dumps({"data": [{"id": name, "max_model_len": window} for name, window in windows.items()]})


async def _settle(proxy: Proxy) -> None:
    await proxy.services.models.settle()


async def test_a_model_is_shown_with_what_is_known_of_it(client, upstream: FakeUpstream, start_proxy) -> None:
    """Models that were requested come first, the latest at the top. Models that an upstream has listed follow."""
    upstream.models = _list(told=8192, asked=4096)
    proxy = await start_proxy("models=[{match: mine, context_window: 9000}]")
    await _settle(proxy)
    for model in ("asked", "gpt-4", "mine"):
        await _ask(client, proxy, model)
    await _settle(proxy)

    host = upstream.url.removeprefix("http://").removesuffix("/v1")
    same = {"upstream": host, "token_ratio": 1.0, "calibrated": False, "samples": 0, "vocabulary": "o200k_base"}
    same |= {"mean_error": 0.0, "learned": [], "mode": "enforce"}
    assert await _look(client, proxy) == {
        "models": [
            same | {"model": "mine", "window_tokens": 9000, "window_from": "configured"},
            same | {"model": "gpt-4", "window_tokens": 128_000, "window_from": "default", "vocabulary": "cl100k_base"},
            same | {"model": "asked", "window_tokens": 4096, "window_from": "discovered"},
            same | {"model": "told", "window_tokens": 8192, "window_from": "discovered"},
        ],
        "unlisted": 0,
    }


async def test_a_name_that_no_upstream_has_vouched_for_is_not_shown(client, upstream, start_proxy) -> None:
    async def refuse(_recorded, _request):
        return error(404, message="no such model")

    upstream.answer = refuse
    proxy = await start_proxy("upstream.api_key=sk-PLANTED")
    await _ask(client, proxy, "PLANTED text", Authorization="Bearer PLANTED")

    assert await _look(client, proxy) == {"models": [], "unlisted": 0}


@pytest.mark.parametrize("told", [0, 4])
async def test_a_long_list_is_cut(client, upstream, start_proxy, told: int) -> None:
    upstream.models = _list(**{f"told-{number}": 8192 for number in range(told)})
    proxy = await start_proxy()
    for number in range(3):
        await _ask(client, proxy, f"m-{number}")
    await _settle(proxy)
    shown = orjson.loads(write_models(proxy.services, max_shown=2))

    assert [model["model"] for model in shown["models"]] == ["m-2", "m-1"]
    assert shown["unlisted"] == 1 + told


# What the pages show of texts: only if they are kept, and nothing that must stay secret.


KEEP = "dashboard.keep_text=true"
PLANTED = "PLANTED-TEXT"
KEY = "sk-PLANTED-KEY-0123456789abcdef"


async def send(client, proxy):
    """A long session with a planted text and a planted key; its id and the name of the session."""
    session = make_session(40)
    session["messages"][3]["content"] += f"\n{PLANTED}"
    session["messages"][1]["content"] += f" {PLANTED}"
    body = {"model": f"m-{KEY}", **session}
    url = f"{proxy.url}/v1/chat/completions?api-key={KEY}"
    response, _ = await post(client, url, body, authorization=f"Bearer {KEY}")
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.past.settle()
    (event,) = await read_events(proxy.services.past)
    return response.headers["x-trimtab-request-id"], event.session


async def read_all(client, proxy, request_id, session):
    found = b""
    paths = ("overview", "timeline", "requests", f"requests/{request_id}", "sessions", f"sessions/{session}", "models")
    for path in paths:
        async with client.get(f"{proxy.url}/trimtab/api/{path}") as response:
            assert response.status == 200
            found += await response.read()
    async with client.get(f"{proxy.url}/trimtab/api/events") as response:
        found += await response.content.readuntil(b"\n\n")
        (event,) = await read_events(proxy.services.past)
        proxy.services.past.add(msgspec.structs.replace(event, request_id="again"))
        while b"event: request" not in found:
            found += await response.content.readuntil(b"\n\n")
    return found


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_planted_text_is_shown_only_if_it_is_kept_and_a_planted_key_never(keeps, client, start_proxy, log):
    proxy = await start_proxy(*SMALL, *([KEEP] if keeps else []))
    request_id, session = await send(client, proxy)
    found = await read_all(client, proxy, request_id, session)
    assert (PLANTED.encode() in found) is keeps
    assert KEY.encode() not in found
    assert KEY not in str(log.lines)


async def test_kept_text_is_shown_line_by_line(client, start_proxy):
    """The story is that of the text, the session says that it has text, and both can be erased alone."""
    proxy = await start_proxy(*SMALL, KEEP)
    request_id, session = await send(client, proxy)
    url = f"{proxy.url}/trimtab/api"

    async def read(path):
        async with client.get(f"{url}/{path}") as response:
            return orjson.loads(await response.read())

    shown = await read(f"requests/{request_id}")
    text = shown["text"]
    assert text["sentences"] == shown["event"]["story"] != []
    assert all(change["lines"] == diff_lines(change["before"], change["after"]) for change in text["changes"])
    assert (await read("sessions"))["sessions"][0]["has_text"] is True
    headers = {"x-trimtab-dashboard": "1"}
    async with client.delete(f"{url}/sessions/{session}?text=only", headers=headers) as response:
        assert response.status == 204
    shown = await read(f"requests/{request_id}")
    assert (shown["text"], bool(shown["event"]["story"])) == (None, True)
    assert (await read("sessions"))["sessions"][0]["has_text"] is False
    assert PLANTED not in str(await read(f"requests/{request_id}"))


async def test_an_unknown_window_and_an_estimate_are_noted(client, start_proxy):
    proxy = await start_proxy("defaults.count=heuristic")
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "strange", "messages": []})
    body = {"model": "strange", "messages": [{"role": "user", "content": "hi"}]}
    await post(client, f"{proxy.url}/v1/chat/completions", body)
    async with client.get(f"{proxy.url}/trimtab/api/overview") as response:
        notes = orjson.loads(await response.read())["notes"]
    assert {note["kind"] for note in notes} == {"counting", "window"}
    assert all("strange" in note["text"] for note in notes)
