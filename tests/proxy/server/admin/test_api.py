"""The dashboard's data over HTTP: its numbers are those of the metrics and of the upstream."""

import time
from functools import partial
from types import SimpleNamespace

import orjson
import pytest
from msgspec import structs
from support.client import CHAT, post
from support.events import make_event

from trimtab.proxy.account.history.sessions import SessionQuery
from trimtab.proxy.account.history.texts import write_notes
from trimtab.proxy.http.errors import InvalidQueryError
from trimtab.proxy.server.admin import api
from trimtab.proxy.store.store import StoreError

PRICED = "prices={unit: usd, input: 2.5, cached_input: 0.25, output: 10}"


async def read(client, proxy, path, **headers):
    async with client.get(f"{proxy.url}/trimtab/api/{path}", headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return orjson.loads(await response.read())


@pytest.fixture
async def shared(client, start_proxy):
    """A proxy with a session of each of two clients, and what Bob's key shows of a path: the status and the answer."""
    proxy = await start_proxy("client_keys={alice: key-a, bob: key-b}", "admin_token=boss", "dashboard.keep_text=true")
    for key, text in (("key-a", "hello"), ("key-b", "hi")):
        await post(client, f"{proxy.url}/v1/chat/completions", say(text), authorization=f"Bearer {key}")
    await proxy.services.lifecycle.idle.wait()
    listed = (await read(client, proxy, "requests", authorization="Bearer boss"))["requests"]

    async def ask(path: str, method: str = "GET", key: str = "key-b"):
        headers = {"authorization": f"Bearer {key}", "x-trimtab-dashboard": "1"}
        async with client.request(method, f"{proxy.url}{path}", headers=headers) as response:
            return response.status, await response.read()

    return {one["client"]: one for one in listed}, ask


def say(text: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


async def test_a_clients_key_shows_that_clients_own_sessions(shared):
    mine, ask = shared
    for name in ("sessions", "requests"):
        for query in ("", "?client=alice", "?client=bob"):
            status, answer = await ask(f"/trimtab/api/{name}{query}")
            assert (status, [one["client"] for one in orjson.loads(answer)[name]]) == (200, ["bob"])
    for path in (f"sessions/{mine['bob']['session']}", f"requests/{mine['bob']['request_id']}", "sessions?words=hi"):
        assert (await ask(f"/trimtab/api/{path}"))[0] == 200
    for name in (f"sessions/{mine['alice']['session']}", f"requests/{mine['alice']['request_id']}"):
        for query in ("", "?client=alice"):
            assert (await ask(f"/trimtab/api/{name}{query}"))[0] == 404
    assert (await ask("/trimtab/"))[0] == 200


@pytest.mark.parametrize(
    "path", ["/metrics", *(f"/trimtab/api/{one}" for one in ("overview", "timeline", "models", "curve"))]
)
async def test_what_all_clients_did_is_closed_to_a_clients_key(shared, path):
    """The answer says which key opens it, and what this key shows."""
    status, answer = await shared[1](path)
    error = orjson.loads(answer)["error"]
    assert (status, error["code"]) == (403, "pages_closed")
    assert "admin_token" in error["message"]
    assert "own sessions" in error["message"]
    assert (await shared[1](path, key="boss"))[0] == 200


async def test_erasing_needs_the_admin(shared, log):
    """A client may have its own session cut, as with a header, and no other one."""
    mine, ask = shared
    own, other = (f"/trimtab/api/sessions/{mine[name]['session']}" for name in ("bob", "alice"))
    for path in (own, f"{own}?text=only", other):
        assert (await ask(path, "DELETE"))[0] == 403
    assert (await ask(f"{own}/compact", "POST"))[0] == 204
    assert (await ask(f"{other}/compact", "POST"))[0] == 404
    assert not [line for line in log.lines if line["event"] == "session_erased"]
    assert (await ask(own, "DELETE", key="boss"))[0] == 204
    (told,) = [line for line in log.lines if line["event"] == "session_erased"]
    assert (told["session"], told["text_only"]) == (mine["bob"]["session"], False)
    assert (await ask(own))[0] == 404


async def test_the_stream_of_a_clients_key_has_no_request_of_another(client, start_proxy):
    proxy = await start_proxy("client_keys={alice: key-a, bob: key-b}")
    url = f"{proxy.url}/trimtab/api/events"
    async with client.get(url, headers={"authorization": "Bearer key-b"}) as response:
        for key in ("key-a", "key-b"):
            await post(client, f"{proxy.url}/v1/chat/completions", CHAT, authorization=f"Bearer {key}")
        while (line := await response.content.readline()) != b"event: request\n":
            assert line.strip() in {b"", b": still here"}  # and no totals
        data = await response.content.readline()
    assert orjson.loads(data.removeprefix(b"data: "))["client"] == "bob"


def test_what_a_reader_asks_of_sessions_is_what_is_looked_for():
    """An empty name is none. The error of an order that there is not says which there are."""
    names = {"words": "a b", "model": "m", "client": "ci", "outcome": "compacted"}
    asked = api.read_session_query({**names, "limit": "7", "page": "3", "sort": "requests", "order": "asc"})
    assert asked == SessionQuery(7, 14, **names, order="requests", ascends=True)
    for empty in ({}, dict.fromkeys(names, ""), {"order": "desc"}):
        assert api.read_session_query(empty) == SessionQuery(50)
    for name, allowed in (("sort", "last"), ("order", "asc")):
        with pytest.raises(InvalidQueryError, match=allowed) as refused:
            api.read_session_query({name: "at;DROP"})
        assert refused.value.param == name


async def test_the_books_tell_the_week_and_the_days_and_survive_a_restart(client, start_proxy, tmp_path):
    """With the newest request. Without a price there is no money."""
    store, first_day = f"store=sqlite:///{tmp_path}/summaries.sqlite3", time.time() // 86400 * 86400
    for number in (1, 2):
        proxy = await start_proxy(store, PRICED)
        await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
        await proxy.services.lifecycle.idle.wait()
        week = (await read(client, proxy, "overview"))["week"]
        assert (week["requests"], week["days"], week["unpriced_requests"]) == (number, 7, 0)
        assert week["original_tokens"] == week["sent_tokens"] > week["completion_tokens"] > 0
        assert week["cost_usd"] > 0
        assert week["net_usd"] == pytest.approx(week["without_usd"] - week["cost_usd"])
        await proxy.services.recorder.books.flush()
        assert (await read(client, proxy, "overview"))["week"] == week
        told = await read(client, proxy, "timeline?days=30")
        assert (told["step_seconds"], len(told["buckets"])) == (86400, 30)
        days = [one for one in told["buckets"] if one["requests"]]
        assert sum(one["requests"] for one in days) == number
        assert first_day <= days[0]["at"] <= days[-1]["at"] <= told["buckets"][-1]["at"] <= time.time()
        assert all(one["models"]["m"]["cost_usd"] > 0 for one in days)


async def test_one_of_several_workers_shows_what_others_note_and_no_sums_that_it_cannot_know(client, start_proxy):
    """With `store: memory`, each has the books of its own requests only."""
    proxy = await start_proxy("store=memory")
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    past, note = proxy.services.past, {"kind": "window", "text": "Worker 2 knows no window."}
    past.places = structs.replace(past.places, workers=2)
    await past.read(partial(write_notes, worker=2, notes=orjson.dumps([note])))
    overview = await read(client, proxy, "overview")
    assert (overview["week"], overview["totals"]["requests"]) == (None, 1)
    assert note in overview["notes"]
    assert not any(one["requests"] for one in (await read(client, proxy, "timeline?days=30"))["buckets"])


async def test_requests_are_listed_newest_first_page_by_page(client, start_proxy):
    proxy = await start_proxy()
    ids = [str(number) for number in range(6)]
    for number in ids:
        proxy.services.past.add(make_event(number, session="s", at=float(number), model="m"))
    proxy.services.past.add(make_event("x", session="other", at=9.0))
    page = await read(client, proxy, "requests?limit=4")
    listed = [event["request_id"] for event in page["requests"]]
    while page["more"]:
        page = await read(client, proxy, f"requests?limit=4&before={listed[-1]}")
        listed += [event["request_id"] for event in page["requests"]]
    assert listed == ["x", *ids[::-1]]
    for query, found in (("session=s", ids[::-1]), ("outcome=aborted", []), ("model=m&limit=500", ids[::-1])):
        one = await read(client, proxy, f"requests?{query}")
        assert [event["request_id"] for event in one["requests"]] == found


async def test_a_long_session_shows_its_newest_requests(client, start_proxy, monkeypatch):
    proxy = await start_proxy()
    for number in range(6):
        proxy.services.past.add(make_event(str(number), session="s", at=float(number)))
    for query, ids, more in (("", "012345", False), ("?limit=6", "012345", False), ("?limit=2", "45", True)):
        shown = await read(client, proxy, f"sessions/s{query}")
        assert ["".join(turn["request_id"] for turn in shown["turns"]), shown["more"]] == [ids, more]
        assert shown["session"]["requests"] == 6
    monkeypatch.setattr(api, "MAX_LISTED", 3)
    for query in ("", "?limit=3"):
        shown = await read(client, proxy, f"sessions/s{query}")
        assert ([turn["request_id"] for turn in shown["turns"]], shown["more"]) == (["3", "4", "5"], True)


async def test_an_unknown_thing_is_not_found(client, start_proxy):
    proxy = await start_proxy()
    for path in ("requests/none", "sessions/none", "requests?before=none", "nope", "overview/x", "events/x", ""):
        async with client.get(f"{proxy.url}/trimtab/api/{path}") as response:
            assert response.status == 404
            assert orjson.loads(await response.read())["error"]["code"] == "not_found"


MOST = {"timeline?minutes": 1440, "timeline?days": 366, "requests?limit": 500, "sessions?limit": 500}
MOST |= {"sessions/s?limit": 500, "sessions?page": 10**6}


async def test_a_wrong_number_is_refused(client, start_proxy):
    """The error names the parameter, and the numbers that are allowed."""
    proxy = await start_proxy()
    proxy.services.past.add(make_event("1", session="s"))
    for path, most in MOST.items():
        name = path.partition("?")[2]
        for value in ("abc", "", "0", "-1", "1.5", str(most + 1), "%D9%A3", "1" * 5000):
            async with client.get(f"{proxy.url}/trimtab/api/{path}={value}") as response:
                assert response.status == 400, value
                error = orjson.loads(await response.read())["error"]
                assert (error["code"], error["param"]) == ("invalid_query", name)
                assert error["message"] == f"{name} must be a whole number from 1 to {most}"
        await read(client, proxy, f"{path}=1")
        await read(client, proxy, f"{path}={most}")


async def test_the_timeline_has_no_holes(client, start_proxy, monkeypatch):
    proxy = await start_proxy()
    await post(client, f"{proxy.url}/v1/chat/completions", CHAT)
    await proxy.services.lifecycle.idle.wait()
    (event,) = (await read(client, proxy, "requests"))["requests"]
    monkeypatch.setattr(api, "time", SimpleNamespace(time=lambda: event["at"]))  # its minute may be over by now
    for minutes, step, number in ((60, 60, 60), (1440, 720, 120), (1, 60, 1)):
        timeline = await read(client, proxy, f"timeline?minutes={minutes}")
        times = [bucket["at"] for bucket in timeline["buckets"]]
        assert timeline["step_seconds"] == step
        assert times == [times[0] + step * index for index in range(number)]
        assert times[-1] <= event["at"] < times[-1] + step
        assert sum(bucket["requests"] for bucket in timeline["buckets"]) == 1


async def test_a_session_can_be_erased_but_only_with_the_header(client, start_proxy):
    proxy = await start_proxy()
    for name in ("a", "b"):
        proxy.services.past.add(make_event(name, session=name))
    url = f"{proxy.url}/trimtab/api/sessions/a"
    for method, headers, status in (
        ("DELETE", {}, 403),
        ("POST", {"x-trimtab-dashboard": "1"}, 405),
        ("DELETE", {"x-trimtab-dashboard": "1"}, 204),
        ("DELETE", {"x-trimtab-dashboard": "1"}, 404),
        ("GET", {}, 404),
    ):
        async with client.request(method, url, headers=headers) as response:
            assert (method, response.status) == (method, status)
    assert [one["id"] for one in (await read(client, proxy, "sessions"))["sessions"]] == ["b"]
    assert [event["request_id"] for event in (await read(client, proxy, "requests"))["requests"]] == ["b"]


async def test_what_is_to_be_erased_is_never_guessed(client, start_proxy):
    proxy = await start_proxy()
    proxy.services.past.add(make_event("1", session="s"))
    for value in ("onyl", ""):
        url = f"{proxy.url}/trimtab/api/sessions/s?text={value}"
        async with client.delete(url, headers={"x-trimtab-dashboard": "1"}) as response:
            assert response.status == 400
            error = orjson.loads(await response.read())["error"]
            assert (error["code"], error["param"]) == ("invalid_query", "text")
    assert (await read(client, proxy, "sessions/s"))["turns"]


async def test_without_the_dashboard_there_is_no_page(client, start_proxy):
    proxy = await start_proxy("dashboard.enabled=false")
    gone = dict.fromkeys(("", "api/overview", "api/events", "page.css"), 404)
    for path, status in (gone | dict.fromkeys(("health", "ready", "api/models"), 200)).items():
        async with client.get(f"{proxy.url}/trimtab/{path}") as response:
            assert response.status == status


async def test_a_table_that_cannot_be_read_is_said_so(client, start_proxy, monkeypatch):
    """No other page depends on it, nor on the books: a week that cannot be read is null."""
    proxy = await start_proxy()

    async def fail(_):
        msg = "sqlite"
        raise StoreError(msg, "the disk is full")

    monkeypatch.setattr(proxy.services.recorder.books, "read", fail)
    overview = await read(client, proxy, "overview")
    assert (overview["week"], overview["totals"]["requests"], overview["totals"]["net_usd"]) == (None, 0, None)
    monkeypatch.setattr(proxy.services.past, "read", fail)
    for method, path in (("GET", "requests"), ("GET", "overview"), ("DELETE", "sessions/s"), ("GET", "events")):
        url = f"{proxy.url}/trimtab/api/{path}"
        async with client.request(method, url, headers={"x-trimtab-dashboard": "1"}) as response:
            assert (path, response.status) == (path, 503)
            error = orjson.loads(await response.read())["error"]
            assert (error["code"], "the disk is full" in error["message"]) == ("worker_silent", True)
    async with client.get(f"{proxy.url}/trimtab/api/models") as response:
        assert response.status == 200
