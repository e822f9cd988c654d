"""The dashboard with two workers: any of them answers for both."""

import asyncio
import os
import re
import signal

import aiohttp
import orjson
from end_to_end.test_workers import find_workers
from programs.serving import read_log, serving
from support.client import SMALL, post
from support.sessions import make_session, requests_of

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
