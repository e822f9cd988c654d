"""A store that fails during a session, that is shared, or that somebody reads.

Law: no request fails because of the store, and the forwarded requests stay the same. Nothing can be read in it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from programs.redis_server import PROGRAM, RedisServer, run_redis
from support.client import SMALL, post, settle
from support.leaks import read_sample
from support.sessions import make_session, requests_of

from trimtab.proxy.server.app import Proxy
from trimtab.proxy.store import opening, redis, sqlite

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
STEPS = 42
OUT, BACK, ASIDE = "store_unreachable", "store_reachable", "store_set_aside"
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not on PATH")


@contextmanager
def damage(file: Path, *_: Any) -> Iterator[None]:
    """The bytes of the file are overwritten while it is open."""
    for path in file.parent.glob(f"{file.name}*"):
        if path.suffix != ".lock":
            path.write_bytes(b"\x55" * max(path.stat().st_size, 4096))
    yield


@contextmanager
def stop_server(_file: Path, _proxy: Proxy, server: RedisServer) -> Iterator[None]:
    """The server dies with all its data, and is started again."""
    server.stop()
    yield
    server.start()


@contextmanager
def leap_back(_file: Path, proxy: Proxy, _server: None) -> Iterator[None]:
    """The clock jumps back by a month, and stays there. Summaries that are written now have expired then."""
    proxy.services.summaries._store._durable._clock = lambda: time.time() - 30 * 86400
    yield


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the store's waits. Only a busy machine waits for a server: a stopped one refuses at once."""
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(redis, "CONNECT_SECONDS", 30.0)
    monkeypatch.setattr(redis, "OPERATION_SECONDS", 30.0)
    monkeypatch.setattr(opening, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(opening, "MAX_PAUSE_SECONDS", 0.02)


@pytest.fixture(scope="module")
def bodies() -> list[dict[str, Any]]:
    """The requests of a session."""
    session = make_session(STEPS, result_words=120)
    return [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]


async def ask_all(client: Any, proxy: Proxy, bodies: list[dict[str, Any]], **headers: str) -> None:
    """Send requests, and wait after each for the summary that it may have started in the background."""
    for body in bodies:
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
        assert response.status == 200
        await settle(proxy)


async def play_alone(client: Any, serve: Any, upstream: Any, bodies: list[dict[str, Any]]) -> list[bytes]:
    """What a proxy with its summaries in memory forwards. The upstream's record is cleared afterwards."""
    async with serve("store=memory") as proxy:
        await ask_all(client, proxy, bodies)
    sent = [recorded.body for recorded in upstream.chats]
    upstream.requests.clear()
    return sent


@pytest.mark.parametrize(
    ("inflict", "told"),
    [(damage, (ASIDE,)), (leap_back, ()), pytest.param(stop_server, (OUT, BACK), marks=needs_redis)],
)
async def test_a_store_that_fails_changes_nothing(inflict, told, bodies, client, upstream, request) -> None:
    """The forwarded bytes are those of a store without faults, during the fault and after it. No summary is lost."""
    serve, log, file = *map(request.getfixturevalue, ("serve", "log")), request.getfixturevalue("tmp_path") / "own/a"
    alone = await play_alone(client, serve, upstream, bodies)
    with run_redis() if inflict is stop_server else nullcontext() as server:
        url = server.url if server else f"sqlite:///{file}"
        async with serve(f"store={url}") as proxy:
            await ask_all(client, proxy, bodies[: STEPS // 3])
            with inflict(file, proxy, server):
                await ask_all(client, proxy, bodies[STEPS // 3 : -STEPS // 6])
            await proxy.services.summaries._store.settle()
            await ask_all(client, proxy, bodies[-STEPS // 6 :])
            assert (read_sample(proxy, "trimtab_store_errors_total") > 0) is (OUT in told)
            assert read_sample(proxy, "trimtab_fail_open_total") == 0
        assert [recorded.body for recorded in upstream.chats] == alone
        assert tuple(line["event"] for line in log.lines if line["event"].startswith("store_")) == told
        upstream.requests.clear()
        async with serve(f"store={url}") as proxy:
            await ask_all(client, proxy, bodies[-1:])
    # Summaries written during the fault are found after a restart, unless they have expired.
    assert [len(upstream.chats), len(upstream.summaries)] == [1, int(inflict is leap_back)]


@needs_redis
async def test_replicas_that_take_turns_forward_the_same_bytes(bodies, client, upstream, serve) -> None:
    """Each replica finds the other's summaries on the server."""
    alone = await play_alone(client, serve, upstream, bodies)
    with run_redis() as server:
        async with serve(f"store={server.url}") as left, serve(f"store={server.url}") as right:
            for number, body in enumerate(bodies):
                await ask_all(client, (left, right)[number % 2], [body])
    assert [recorded.body for recorded in upstream.chats] == alone


@pytest.mark.parametrize("credential", ["Bearer one", ""])
async def test_the_file_reveals_nothing(credential, bodies, client, upstream, serve, tmp_path) -> None:
    """The summary, the transcript and the credential do not appear in the store's bytes. All files have mode 0600."""
    plain = upstream.answer

    async def repeat(recorded: Any, request: Any) -> Any:
        response = await plain(recorded, request)
        if recorded.asks_for_summary:
            response.body = response.body.replace(b"SUMMARY", b"SUMMARY word0x7")
        return response

    upstream.answer = repeat
    async with serve(f"store=sqlite:///{tmp_path}/own/summaries.sqlite3") as proxy:
        await ask_all(client, proxy, bodies[-4:], Authorization=credential)
        files = list((tmp_path / "own").iterdir())
        kept = b"".join(file.read_bytes() for file in files)
        modes = {file.stat().st_mode & 0o777 for file in files}
    assert any("SUMMARY word0x7" in str(chat.json["messages"][1]) for chat in upstream.chats)
    assert len(kept) > 1000
    for secret in ("word0x7", "SUMMARY", "Bearer one"):
        assert secret.encode() not in kept
        assert secret.encode("utf-16-le") not in kept
    assert modes == {0o600}
