"""A restarted proxy, and two replicas in turn, forward the same bytes as a single proxy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from programs.redis_server import PROGRAM, RedisServer
from support.client import SMALL, post, settle
from support.sessions import make_session, requests_of

from trimtab.proxy.server.app import Proxy

SETTINGS = (*SMALL, "defaults.summary.max_tokens=300")
ONE_CUT = 20
"""The index of a request whose cut part fits into one summary request."""
PLANTED = "the harbour master keeps his spare key under the third bollard"
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not on PATH")


@pytest.fixture
def redis_url(tmp_path: Path) -> Any:
    """The URL of a Redis server for this test only."""
    server = RedisServer(tmp_path)
    server.start()
    yield server.url
    server.stop()


def bodies() -> list[dict[str, Any]]:
    """Every other request of a session. A result and the task contain the planted sentence."""
    session = make_session(60, result_words=120)
    session["messages"][1]["content"] += f" Note: {PLANTED}."
    session["messages"][5]["content"] += f"\n{PLANTED}"
    every_other = list(requests_of(session))[::2]
    return [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in every_other]


async def ask(client: Any, proxy: Proxy, body: dict[str, Any], **headers: str) -> None:
    """Send one request, and wait for the summary that it may have started in the background."""
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body, **headers)
    assert response.status == 200
    await settle(proxy)


async def replay_alone(client: Any, upstream: Any, serve: Any, **headers: str) -> list[bytes]:
    """The requests that one proxy forwards with summaries in memory. The upstream's record is cleared afterwards."""
    async with serve("store=memory") as proxy:
        for body in bodies():
            await ask(client, proxy, body, **headers)
    sent = [recorded.body for recorded in upstream.chats]
    upstream.requests.clear()
    return sent


async def test_after_a_restart_the_same_bytes_go_out(client, upstream, serve, tmp_path) -> None:
    """Decisions are a function of the transcript, and the summaries are in the file."""
    alone = await replay_alone(client, upstream, serve)
    store = f"store=sqlite:///{tmp_path}/summaries.sqlite3"
    for body in bodies():
        async with serve(store) as proxy:
            await ask(client, proxy, body)
    assert [recorded.body for recorded in upstream.chats] == alone
    assert len(upstream.summaries) <= 3


@needs_redis
async def test_replicas_that_take_turns_forward_the_same_bytes(client, upstream, serve, redis_url) -> None:
    """Each replica finds the other's summaries on the server."""
    alone = await replay_alone(client, upstream, serve)
    async with serve(f"store={redis_url}") as left, serve(f"store={redis_url}") as right:
        for number, body in enumerate(bodies()):
            await ask(client, (left, right)[number % 2], body)
    assert [recorded.body for recorded in upstream.chats] == alone


async def test_a_store_that_is_gone_refuses_nobody(client, upstream, serve, log) -> None:
    """Memory is used instead, and the failures are counted."""
    alone = await replay_alone(client, upstream, serve)
    async with serve("store=redis://127.0.0.1:1/0") as proxy:
        for body in bodies():
            await ask(client, proxy, body)
        metrics = proxy.services.recorder.metrics.render().decode()
    assert [recorded.body for recorded in upstream.chats] == alone
    assert 'trimtab_store_errors_total{store="redis"}' in metrics
    assert [line["event"] for line in log.lines if "store" in line["event"]] == ["store_unreachable"]


@pytest.mark.parametrize("credential", ["Bearer one", ""])
async def test_the_file_reveals_nothing(credential, client, upstream, serve, tmp_path) -> None:
    """The summary, the transcript and the credential do not appear in the store's bytes. All files have mode 0600."""
    plain = upstream.answer

    async def repeat(recorded: Any, request: Any) -> Any:
        response = await plain(recorded, request)
        if recorded.asks_for_summary:
            response.body = response.body.replace(b"SUMMARY", f"SUMMARY {PLANTED}".encode())
        return response

    upstream.answer = repeat
    async with serve(f"store=sqlite:///{tmp_path}/own/summaries.sqlite3") as proxy:
        for body in bodies()[ONE_CUT : ONE_CUT + 4]:
            await ask(client, proxy, body, Authorization=credential)
        files = sorted((tmp_path / "own").iterdir())
        kept = b"".join(file.read_bytes() for file in files)
        modes = {file.stat().st_mode & 0o777 for file in files}
    assert any(PLANTED in str(chat.json["messages"][1]) for chat in upstream.chats)
    assert len(kept) > 1000
    assert not _reveals(kept, (PLANTED, "SUMMARY", "Bearer one"))
    assert modes == {0o600}


def _reveals(kept: bytes, secrets: Sequence[str]) -> bool:
    return any(secret.encode() in kept or secret.encode("utf-16-le") in kept for secret in secrets)
