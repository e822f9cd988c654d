"""A session is cut when somebody asks for it, over real sockets.

Law: once, by a mark that is kept and replayed by every replica and after a restart. What was said for the summary
reaches the model that writes it. Nothing else of a request changes.
"""

from typing import Any

import pytest
from support.client import SMALL, post, settle
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import make_session, requests_of

SETTINGS = (*SMALL, "defaults.summary.max_tokens=300", "prices={}")
AT = 24
"""Index of the request that asks. By then the session is longer than low water, and was never cut."""
EARLIER = {"chat": 0, "responses": 0, "messages": 9}
"""How much earlier in a dialect in which the same session has more tokens."""
WIRE = {
    "chat": ("/v1/chat/completions", dict),
    "responses": ("/v1/responses", to_responses),
    "messages": ("/v1/messages", to_messages),
}


def _make_bodies(dialect: str = "chat") -> list[dict[str, Any]]:
    session = make_session(36, result_words=120)
    parts = ({"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session))
    return [{**WIRE[dialect][1](part), "model": "m"} for part in parts]


async def _ask(client: Any, proxy: Any, upstream: Any, body: Any, dialect: str = "chat", **headers: str) -> Any:
    """Send a request. Returns what was forwarded, its elements, and the decisions."""
    response, answer = await post(client, proxy.url + WIRE[dialect][0], body, **headers)
    assert response.status == 200, answer
    await settle(proxy)
    sent = upstream.chats[-1].json
    return sent.get("messages") or sent["input"], response.headers.get("x-trimtab-decisions", "")


OWN = {"x-trimtab-dashboard": "1"}
NOW = {"x-trimtab-compact": "now keep the names of tables"}


@pytest.mark.parametrize("dialect", WIRE)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_the_header_cuts_once_and_the_cut_stays(dialect, store, client, upstream, serve, tmp_path) -> None:
    bodies, key = _make_bodies(dialect), f"store={store if store == 'memory' else f'sqlite:///{tmp_path}/s.sqlite3'}"
    at = AT - EARLIER[dialect]
    async with serve(key) as proxy:
        before, _ = await _ask(client, proxy, upstream, bodies[at - 1], dialect)
        cut, decisions = await _ask(client, proxy, upstream, bodies[at], dialect, **NOW)
        again, retried = await _ask(client, proxy, upstream, bodies[at], dialect, **NOW)
        after, _ = await _ask(client, proxy, upstream, bodies[at + 1], dialect)
    if store == "sqlite":
        async with serve(key) as proxy:
            restarted, _ = await _ask(client, proxy, upstream, bodies[at + 2], dialect)
            assert restarted[: len(after)] == after

    assert len(cut) < len(before) / 2
    assert "compact_now" in decisions
    assert "compact_now" in retried
    assert again == cut
    assert after[: len(cut)] == cut
    assert "[Summary of the earlier messages" in str(cut)
    assert all("keep the names of tables" in str(asked.json) for asked in upstream.summaries)
    assert len(upstream.summaries) == 1
    assert not any("x-trimtab-compact" in str(sent.headers).lower() for sent in upstream.chats)


async def test_the_beginning_of_an_answer_does_not_lose_the_cut(client, upstream, serve) -> None:
    """The next request has the whole answer in place of what the client wrote of it (a prefill)."""
    bodies = _make_bodies()
    begun = {**bodies[AT], "messages": [*bodies[AT]["messages"], {"role": "assistant", "content": "{"}]}
    async with serve("store=memory") as proxy:
        await _ask(client, proxy, upstream, bodies[AT - 1])
        cut, _ = await _ask(client, proxy, upstream, begun, **NOW)
        after, _ = await _ask(client, proxy, upstream, bodies[AT + 1])

    assert len(cut) < len(bodies[AT]["messages"]) / 2
    assert "[Summary of the earlier messages" in str(cut)
    assert after[: len(cut) - 1] == cut[:-1]


async def test_another_replica_replays_it(client, upstream, serve, tmp_path) -> None:
    bodies, key = _make_bodies(), f"store=sqlite:///{tmp_path}/s.sqlite3"
    async with serve(key) as one, serve(key) as other:
        await _ask(client, other, upstream, bodies[AT - 1])
        cut, _ = await _ask(client, one, upstream, bodies[AT], **NOW)
        elsewhere, _ = await _ask(client, other, upstream, bodies[AT + 1])

    assert elsewhere[: len(cut)] == cut
    assert len(upstream.summaries) == 1


async def test_a_message_asks_if_the_operator_allows_it(client, upstream, serve) -> None:
    """It is off by default, and must be the whole message; it still goes to the model."""
    body = _make_bodies()[AT]
    for said in ("/compact", "/compact keep the names of tables", "Please /compact this."):
        asked = {**body, "messages": [*body["messages"], {"role": "user", "content": said}]}
        for settings in ((), ("compaction.command=true",)):
            upstream.requests.clear()
            async with serve("store=memory", *settings) as proxy:
                sent, decisions = await _ask(client, proxy, upstream, asked)
            is_cut = bool(settings) and said.startswith("/compact")
            assert ("compact_now" in decisions) is is_cut
            assert (len(sent) < len(asked["messages"]) / 2) is is_cut
            assert sent[-1]["content"] == said
            assert ("Additional" in str(upstream.summaries) or not is_cut) or len(upstream.summaries) == 1
            if is_cut:
                told = str(upstream.summaries[-1].json["messages"][-1])
                assert ("keep the names of tables" in told) is (said != "/compact" or "keep the names" in str(body))


async def test_a_session_that_is_short_says_so(client, upstream, serve) -> None:
    bodies = _make_bodies()
    async with serve("store=memory") as proxy:
        for at in (0, 3):
            sent, decisions = await _ask(client, proxy, upstream, bodies[at], **NOW)
            assert sent == bodies[at]["messages"]
            assert "compact_now;saved=0" in decisions


@pytest.mark.parametrize("value", ["later", "", "now " + "x" * 600])
async def test_another_value_is_an_error(value: str, client, serve) -> None:
    async with serve("store=memory") as proxy:
        url = proxy.url + "/v1/chat/completions"
        response, answer = await post(client, url, _make_bodies()[0], **{"x-trimtab-compact": value})
    async with serve("store=memory", "allow_header_override=false") as proxy:
        ignored, _ = await post(
            client, proxy.url + "/v1/chat/completions", _make_bodies()[0], **{"x-trimtab-compact": value}
        )

    assert response.status == 400
    assert b"unknown_compact" in answer
    assert ignored.status == 200


async def test_the_operator_asks_on_the_dashboard(client, upstream, serve, tmp_path) -> None:
    """The next request of the session is cut, by whichever process gets it; once."""
    bodies, key = _make_bodies(), f"store=sqlite:///{tmp_path}/s.sqlite3"
    async with serve(key) as one, serve(key) as other:
        await _ask(client, other, upstream, bodies[AT - 2])
        await _ask(client, one, upstream, bodies[AT - 1])
        async with client.get(f"{one.url}/trimtab/api/sessions") as response:
            (session,) = (await response.json(content_type=None))["sessions"]
        url = f"{one.url}/trimtab/api/sessions/{session['id']}/compact"
        statuses = []
        for address, headers in (
            (url, {}),
            (f"{url}?words={'x' * 501}", OWN),
            (url.replace("sessions/", "sessions/x"), OWN),
        ):
            async with client.post(address, headers=headers) as response:
                statuses.append(response.status)
        async with client.post(f"{url}?words=keep+the+names+of+tables", headers=OWN) as response:
            statuses.append(response.status)
        other.services.cold_cuts.wishes.read_at = 0.0  # five seconds have passed
        cut, decisions = await _ask(client, other, upstream, bodies[AT])
        after, later = await _ask(client, one, upstream, bodies[AT + 1])

    assert statuses == [403, 400, 404, 204]
    assert "compact_now" in decisions
    assert len(cut) < len(bodies[AT]["messages"]) / 2
    assert "keep the names of tables" in str(upstream.summaries[-1].json)
    assert "compact_now" not in later
    assert after[: len(cut)] == cut
