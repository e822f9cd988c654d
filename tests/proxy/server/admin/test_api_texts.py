"""What the pages show of texts: only if they are kept, and nothing that must stay secret."""

import msgspec
import orjson
import pytest
from support.client import SMALL, post
from support.events import read_events
from support.sessions import make_session

from trimtab.proxy.server.admin.shapes import diff_lines

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
    """Everything that the dashboard tells."""
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
