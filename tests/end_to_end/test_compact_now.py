"""A session is cut when somebody asks for it, over real sockets.

Law: once, by a mark that is kept and replayed by every replica and after a restart. What was said for the summary
reaches the model that writes it. Nothing else of a request changes.
"""

from typing import Any

import pytest
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import CHAT, MESSAGES, RESPONSES
from support.dialects.spoken.dialect import Dialect, Wire
from support.sessions import make_session, requests_of

SETTINGS = (*SMALL, "defaults.summary.max_tokens=300", "prices={}")
AT = 24
"""Index of the request that asks. By then the session is longer than low water, and was never cut."""
OWN = {"x-trimtab-dashboard": "1"}
NOW = {"x-trimtab-compact": "now keep the names of tables"}


def _make_bodies(dialect: Dialect = CHAT) -> list[Wire]:
    session = make_session(36, result_words=120)
    return [dialect.write(messages, session["tools"]) for messages in requests_of(session)]


async def _ask(client: Any, proxy: Any, upstream: Any, body: Any, dialect: Dialect = CHAT, **headers: str) -> Any:
    """Send a request. Returns what was forwarded, its elements, and the decisions."""
    response, answer = await post(client, proxy.url + dialect.path, body, **headers)
    assert response.status == 200, answer
    await settle(proxy)
    return upstream.chats[-1].json[dialect.transcript], response.headers.get("x-trimtab-decisions", "")


@pytest.mark.parametrize(("dialect", "store"), [(CHAT, "memory"), (RESPONSES, "sqlite"), (MESSAGES, "sqlite")], ids=str)
async def test_the_header_cuts_once_and_the_cut_stays(dialect, store, client, upstream, serve, tmp_path) -> None:
    """By every process that shares the store, and after a restart."""
    bodies, key = _make_bodies(dialect), f"store={store if store == 'memory' else f'sqlite:///{tmp_path}/s.sqlite3'}"
    async with serve(key) as proxy:
        before, _ = await _ask(client, proxy, upstream, bodies[AT - 1], dialect)
        cut, decisions = await _ask(client, proxy, upstream, bodies[AT], dialect, **NOW)
        again, retried = await _ask(client, proxy, upstream, bodies[AT], dialect, **NOW)
        after, _ = await _ask(client, proxy, upstream, bodies[AT + 1], dialect)
    if store == "sqlite":
        async with serve(key) as proxy:
            restarted, _ = await _ask(client, proxy, upstream, bodies[AT + 2], dialect)
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
        said, long = f"{url}?words=keep+the+names+of+tables", f"{url}?words={'x' * 501}"
        unknown = url.replace("sessions/", "sessions/x")
        for address, headers in ((url, {}), (long, OWN), (unknown, OWN), (said, OWN)):
            async with client.post(address, headers=headers) as response:
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
