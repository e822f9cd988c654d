"""The dashboard with two workers: any of them answers for both."""

import asyncio
import os
import re
import signal

import aiohttp
import orjson
import pytest
import redis.asyncio
from end_to_end.test_workers import find_folder, find_workers
from programs.redis_server import PROGRAM, RedisServer
from programs.serving import read_log, serving
from support.client import CHAT, SMALL, post
from support.sessions import make_session, requests_of

from trimtab.proxy.account.history.kept import KEY

TWO = ("--set", "workers=2", *(part for setting in SMALL for part in ("--set", setting)))
TRIES = 10
"""This many connections reach both workers, except once in five hundred runs."""


async def ask(url, path, method="GET", **headers):
    """Ask for a page on a new connection, so that either worker may answer."""
    async with aiohttp.ClientSession() as session:
        root = url.removesuffix("/v1")
        async with session.request(method, f"{root}/trimtab/api/{path}", headers=headers) as response:
            body = await response.read()
            return response.status, orjson.loads(body) if body else None


async def ask_whoever_answers(url):
    """The overview of a worker that answers: the stopped one takes some of the connections, and answers none."""
    async with asyncio.timeout(60):
        while True:
            asking = [asyncio.ensure_future(ask(url, "overview")) for _ in range(TRIES)]
            done, left = await asyncio.wait(asking, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            for one in left:
                one.cancel()
            await asyncio.wait(asking)
            if done:
                return done.pop().result()[1]


async def send(url, body):
    async with aiohttp.ClientSession() as session:
        response, _ = await post(session, f"{url}/chat/completions", body)
        assert response.status == 200
        return response.headers["x-trimtab-request-id"]


async def send_session(url):
    """Send a session, each request on its own connection."""
    return [await send(url, {"model": "m", "messages": messages}) for messages in requests_of(make_session(16))]


async def wait_for(url, number):
    """Wait until the dashboard knows so many requests: a request is told a little after its answer."""
    async with asyncio.timeout(30):
        while len((await ask(url, "requests?limit=500"))[1]["requests"]) < number:
            pass  # asking lets everything else run


async def test_any_worker_answers_for_all(upstream):
    """Lists, sums, single requests and totals are the same whoever answers, and those of upstream and metrics page."""
    async with serving(*TWO, "--upstream", upstream.url) as (_, url):
        ids = []
        for messages in requests_of(make_session(16)):
            ids.append(await send(url, {"model": "m", "messages": messages}))
            await wait_for(url, len(ids))  # else a busy worker may tell it after the other has told the next one
        for _ in range(TRIES):
            requests = (await ask(url, "requests?limit=500"))[1]["requests"]
            assert sorted(event["request_id"] for event in requests) == sorted(ids)  # each worker tells its own
            assert {event["worker"] for event in requests} == {1, 2}
            (session,) = (await ask(url, "sessions"))[1]["sessions"]
            assert session["requests"] == len(ids)
            turns = (await ask(url, f"sessions/{session['id']}"))[1]["turns"]
            assert [turn["request_id"] for turn in turns] == ids
            moved = [(turn["window"]["cuts"], turn["window"]["prune_stop"]) for turn in turns if turn["cut_moved"]]
            assert len(moved) == session["cuts"] > 0
            assert all(moved.count(each) == 1 for each in moved)
            listed = [event["request_id"] for event in requests if event["cut_moved"]]
            assert listed[::-1] == [turn["request_id"] for turn in turns if turn["cut_moved"]]
            assert (await ask(url, f"requests/{ids[0]}"))[1]["event"] == turns[0]
            page = (await ask(url, f"requests?limit=3&before={ids[8]}"))[1]
            assert [event["request_id"] for event in page["requests"]] == ids[5:8][::-1]
            overview = (await ask(url, "overview"))[1]
            assert overview["totals"]["requests"] == len(upstream.chats) == len(ids)
            assert overview["totals"]["sent_tokens"] == sum(turn["sent_tokens"] for turn in turns)
            assert overview["workers"] == 2
            assert overview["notes"] == [note for note in overview["notes"] if note["kind"] != "worker"]
            buckets = (await ask(url, "timeline"))[1]["buckets"]
            assert sum(bucket["requests"] for bucket in buckets) == len(ids)
            assert sum(bucket["sent_tokens"] for bucket in buckets) == overview["totals"]["sent_tokens"]
        await check_totals(url)
        await check_erasing(url, ids)


async def check_totals(url):
    """They are those of the metrics page."""
    totals = (await ask(url, "overview"))[1]["totals"]
    async with aiohttp.ClientSession() as session, session.get(url.removesuffix("/v1") + "/metrics") as response:
        page = await response.text()
    for name, metric in (
        ("requests", r"trimtab_requests_total\{"),
        ("sent_tokens", r'trimtab_prompt_tokens_total\{[^}]*stage="sent"'),
        ("saved_tokens", r"trimtab_tokens_saved_total\{"),
        ("cuts_pruned", r'trimtab_cuts_total\{[^}]*kind="prune"'),
    ):
        assert totals[name] == sum(map(float, re.findall(rf"^{metric}.* (\S+)$", page, re.MULTILINE))) > 0


async def check_erasing(url, ids):
    """A session is erased everywhere."""
    ((session,),) = [(await ask(url, "sessions"))[1]["sessions"]]
    assert (await ask(url, f"sessions/{session['id']}", "DELETE", **{"x-trimtab-dashboard": "1"}))[0] == 204
    for _ in range(TRIES):
        assert (await ask(url, "requests"))[1]["requests"] == (await ask(url, "sessions"))[1]["sessions"] == []
        assert (await ask(url, f"requests/{ids[0]}"))[0] == 404


async def test_the_money_over_time_of_all_models_and_clients_is_that_of_the_metrics(upstream):
    """Whichever worker served a request or had a summary written, and whichever answers."""
    setup = ("client_keys={ann: sk-test}", "admin_token=boss", "defaults.overflow_strategy=summarize")
    prices = "prices={unit: usd, input: 2.5, cached_input: 0.25, output: 10}"
    settings = [part for setting in (*setup, prices) for part in ("--set", setting)]
    async with serving(*TWO, *settings, "--upstream", upstream.url) as (_, url):
        ids = await send_session(url)
        boss = {"authorization": "Bearer boss"}
        buckets, totals = [], {}
        async with asyncio.timeout(30):  # a summary written ahead may come after the last answer
            while sum(bucket["requests"] for bucket in buckets) != len(ids) or sum(
                bucket["cost_usd"] for bucket in buckets
            ) != pytest.approx(totals["cost_usd"]):
                totals = (await ask(url, "overview", **boss))[1]["totals"]
                buckets = (await ask(url, "timeline", **boss))[1]["buckets"]
        for _ in range(TRIES):
            buckets = (await ask(url, "timeline", **boss))[1]["buckets"]
            for kind, name in (("models", "m"), ("clients", "ann")):
                shares = [bucket[kind][name] for bucket in buckets if name in bucket[kind]]
                assert sum(share["requests"] for share in shares) == len(ids)
                for own, total in (("cost_usd", "cost_usd"), ("without_usd", "without_usd"), ("saved_usd", "net_usd")):
                    assert sum(share[own] for share in shares) == pytest.approx(totals[total])
        assert totals["summary_usd"] > 0
        (session,) = (await ask(url, "sessions", **boss))[1]["sessions"]
        for name in ("cost_usd", "without_usd", "summary_usd"):
            assert session[name] == pytest.approx(totals[name])


async def test_a_stream_has_the_requests_of_all_workers_and_holds_up_no_drain(upstream):
    """Whichever worker streams. The totals follow."""
    async with serving(*TWO, "--upstream", upstream.url) as (process, url), aiohttp.ClientSession() as session:
        events = url.removesuffix("/v1") + "/trimtab/api/events"
        async with session.get(events) as response:
            assert (await asyncio.wait_for(response.content.readuntil(b"\n\n"), 30)).startswith(b"event: totals")
            sent = {await send(url, CHAT) for _ in range(TRIES)}
            told, workers, totals = set(), set(), {}
            async with asyncio.timeout(30):
                while told != sent or totals.get("requests") != TRIES:
                    name, _, data = (await response.content.readuntil(b"\n\n")).decode().partition("\n")
                    value = orjson.loads(data.strip().removeprefix("data: "))
                    if name == "event: request":
                        told.add(value["request_id"])
                        workers.add(value["worker"])
                    else:
                        totals = value
            assert workers == {1, 2}
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(response.content.read(), 30)
            assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_worker_that_does_not_answer_or_dies_takes_nothing_with_it(upstream):
    """The page works on, with the requests of all."""
    async with serving(*TWO, "--upstream", upstream.url) as (process, url):
        ids = await send_session(url)
        await wait_for(url, len(ids))
        stopped = find_workers(process)[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert (await ask_whoever_answers(url))["totals"]["requests"] == len(ids)
        finally:
            os.kill(stopped, signal.SIGCONT)
        os.kill(stopped, signal.SIGKILL)
        await read_log(process, "worker_ready")
        for _ in range(TRIES):
            _, overview = await ask(url, "overview")
            assert [note["kind"] for note in overview["notes"] if note["kind"] == "worker"] == []
            assert overview["totals"]["requests"] == len(ids)
            requests = (await ask(url, "requests?limit=500"))[1]["requests"]
            assert sorted(event["request_id"] for event in requests) == sorted(ids)  # each worker tells its own
            assert {event["worker"] for event in requests} == {1, 2}


async def test_workers_with_a_store_in_memory_share_their_requests_and_texts_too(upstream):
    """In a folder that only the user can read, and that is gone at the end."""
    settings = ("--set", "store=memory", "--set", "dashboard.keep_text=true")
    async with serving(*TWO, *settings, "--upstream", upstream.url) as (process, url):
        folder = find_folder(process)
        ids = await send_session(url)
        await wait_for(url, len(ids))
        async with asyncio.timeout(30):
            while (await ask(url, f"requests/{ids[-1]}"))[1]["text"] is None:
                pass  # asking lets it be written
        for _ in range(TRIES):
            shown = (await ask(url, f"requests/{ids[-1]}"))[1]
            assert shown["text"]["sentences"] == shown["event"]["story"] != []
            assert (await ask(url, "sessions"))[1]["sessions"][0]["has_text"]
        assert all(path.stat().st_mode & 0o077 == 0 for path in [folder, *folder.glob("*.sqlite3*")])
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        assert not folder.exists()


async def test_the_requests_are_there_after_a_restart_but_no_text(upstream, tmp_path):
    """With a store on disk, for one process as for two."""
    settings = (
        "--set",
        f"store=sqlite:///{tmp_path}/store",
        "--set",
        "dashboard.keep_text=true",
        "--upstream",
        upstream.url,
    )
    async with serving(*TWO, *settings) as (_, url):
        ids = await send_session(url)
        await wait_for(url, len(ids))
    async with serving(*settings) as (_, url):
        requests = (await ask(url, "requests?limit=500"))[1]["requests"]
        assert sorted(event["request_id"] for event in requests) == sorted(ids)  # each worker tells its own
        assert (await ask(url, f"requests/{ids[-1]}"))[1]["text"] is None
        assert (await ask(url, "sessions"))[1]["sessions"][0]["has_text"] is False
    words = [message["content"] for message in make_session(16)["messages"] if len(str(message["content"])) > 40]
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [word for word in words if word[:30].encode() in written]


@pytest.mark.skipif(PROGRAM is None, reason="redis-server is not on PATH")
async def test_replicas_share_their_requests_and_their_erasing(upstream, tmp_path):
    """Through the server of their store, which gets no text."""
    server = RedisServer(tmp_path)
    server.start()
    settings = ("--set", f"store={server.url}", "--set", "dashboard.keep_text=true", "--upstream", upstream.url)
    try:
        async with serving(*TWO, *settings) as (_, one), serving(*settings) as (_, two):
            ids = await send_session(one)
            await wait_for(two, len(ids))
            requests = (await ask(two, "requests?limit=500"))[1]["requests"]
            assert sorted(event["request_id"] for event in requests) == sorted(ids)  # each worker tells its own
            (session,) = (await ask(two, "sessions"))[1]["sessions"]
            assert session["requests"] == len(ids)
            async with redis.asyncio.Redis.from_url(server.url) as client:
                entries = b"".join(fields[b"item"] for _, fields in await client.xrange(KEY))
            text = make_session(16)["messages"][0]["content"]
            assert (ids[0].encode() in entries, text[:30].encode() in entries) == (True, False)
            assert (await ask(two, f"sessions/{session['id']}", "DELETE", **{"x-trimtab-dashboard": "1"}))[0] == 204
            for url in (one, two):
                assert (await ask(url, "requests"))[1]["requests"] == []
    finally:
        server.stop()
