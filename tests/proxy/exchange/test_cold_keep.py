"""The header `x-trimtab-keep`: what it names stays word for word in every later request. Over real HTTP."""

from typing import Any

import orjson
import pytest
from support.client import SMALL, post, settle
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses

SETTINGS = (
    *SMALL,
    "defaults.overflow_strategy=summarize",
    "defaults.summary.when=never",
    "defaults.max_tool_result_tokens=200",
    "prices={}",
)
RULES = "\n".join(f"rule {number}: never touch table {number * 7}" for number in range(60))
WIRE = {
    "chat": ("/v1/chat/completions", dict),
    "responses": ("/v1/responses", to_responses),
    "messages": ("/v1/messages", to_messages),
}
STEPS = 48


def _step(number: int, text: str) -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": f'{{"path": "f{number}"}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": text},
    ]


def _make_bodies(dialect: str = "chat", at: int = 5, *, stream: bool = False) -> list[dict[str, Any]]:
    """The requests of a session; the last result of request `at` is RULES."""
    chat: list[dict[str, Any]] = [{"role": "user", "content": "Read all files."}]
    bodies = []
    for number in range(STEPS):
        text = "\n".join(f"line {line} of file {number} is {line * number}" for line in range(40))
        chat += _step(number, RULES if number == at else text)
        bodies.append({**WIRE[dialect][1]({"model": "m", "messages": [*chat]}), "model": "m", "stream": stream})
    return bodies


async def _ask(client: Any, proxy: Any, upstream: Any, body: Any, dialect: str = "chat", **headers: str) -> Any:
    """What was forwarded for a request, and the decisions."""
    response, answer = await post(client, proxy.url + WIRE[dialect][0], body, **headers)
    assert response.status == 200, answer
    await settle(proxy)
    sent = upstream.chats[-1]
    assert "x-trimtab-keep" not in str(sent.headers).lower()
    return sent.json.get("messages") or sent.json["input"], response.headers.get("x-trimtab-decisions", "")


def _holds(elements: list[Any]) -> bool:
    return orjson.dumps(RULES).decode()[1:-1] in orjson.dumps(elements).decode()


@pytest.mark.parametrize(("dialect", "stream"), [("chat", True), ("responses", False), ("messages", True)])
async def test_what_is_marked_once_stays_in_every_later_request(dialect, stream, client, upstream, start_proxy) -> None:
    proxy, bodies = await start_proxy(*SETTINGS), _make_bodies(dialect, stream=stream)
    for number, body in enumerate(bodies[::5]):
        headers = {"x-trimtab-keep": "last"} if number == 1 else {}
        sent, decisions = await _ask(client, proxy, upstream, body, dialect, **headers)
        assert _holds(sent) is (number > 0), number
        assert ("keep" in decisions) is (number == 1)
    assert "digest" in decisions
    # what a client has marked is nothing to another one
    assert not _holds((await _ask(client, proxy, upstream, body, dialect, Authorization="Bearer sk-other"))[0])


@pytest.mark.parametrize("at", [1, 20])
async def test_replicas_and_a_restarted_proxy_heed_it(at, client, upstream, start_proxy, tmp_path) -> None:
    store, bodies = f"store=sqlite:///{tmp_path}/s.sqlite3", _make_bodies(at=at)
    one, other = [await start_proxy(*SETTINGS, store) for _ in range(2)]
    await _ask(client, other, upstream, bodies[at - 1])
    before, _ = await _ask(client, one, upstream, bodies[at], **{"x-trimtab-keep": f"-1, c{at}"})
    breaks = 0
    for number in range(STEPS - 2, at, -3)[::-1]:
        sent, _ = await _ask(client, (one, other)[number % 2], upstream, bodies[number])
        assert _holds(sent), number
        breaks += sent[: len(before)] != before
        before = sent
    restarted, _ = await _ask(client, await start_proxy(*SETTINGS, store), upstream, bodies[-1])

    assert restarted[: len(before)] == before
    assert breaks < STEPS / 8


async def test_messages_are_named_by_place_or_by_call(client, upstream, start_proxy) -> None:
    for name in ("12", "-1", "c5", "last", "c5, nothing"):
        proxy, bodies = await start_proxy(*SETTINGS), _make_bodies()
        _, decisions = await _ask(client, proxy, upstream, bodies[5], **{"x-trimtab-keep": name})
        assert "keep" in decisions
        assert _holds((await _ask(client, proxy, upstream, bodies[-1]))[0]), name


async def test_what_is_not_there_changes_nothing_and_is_told(client, upstream, start_proxy) -> None:
    proxy, bodies = await start_proxy(*SETTINGS, "allow_header_override=true"), _make_bodies()
    for name in ("99", "-99", "nothing"):
        _, decisions = await _ask(client, proxy, upstream, bodies[5], **{"x-trimtab-keep": name})
        assert "keep" in decisions
    assert not _holds((await _ask(client, proxy, upstream, bodies[-1]))[0])


async def test_another_form_is_an_error(client, upstream, start_proxy) -> None:
    proxy, body = await start_proxy(*SETTINGS), _make_bodies()[5]
    for name in ("", "a b", ",", ", ".join(str(number) for number in range(17)), "x" * 201):
        response, answer = await post(client, f"{proxy.url}/v1/chat/completions", body, **{"x-trimtab-keep": name})
        assert (response.status, orjson.loads(answer)["error"]["code"]) == (400, "unknown_keep")
    assert upstream.chats == []


async def test_where_headers_or_modes_do_not_allow_it_nothing_is_kept(client, upstream, start_proxy) -> None:
    bodies = _make_bodies()
    for setting, asked in (("allow_header_override=false", {}), ("mode=enforce", {"x-trimtab-mode": "observe"})):
        proxy = await start_proxy(*SETTINGS, setting)
        await _ask(client, proxy, upstream, bodies[5], **{"x-trimtab-keep": "last"}, **asked)
        assert not _holds((await _ask(client, proxy, upstream, bodies[-1]))[0])


async def test_the_endpoint_for_callers_heeds_it(client, start_proxy) -> None:
    proxy, bodies = await start_proxy(*SETTINGS), _make_bodies()
    url = f"{proxy.url}/trimtab/api/compact?summary=digest"
    for body, headers in ((bodies[5], {"x-trimtab-keep": "last"}), (bodies[-1], {})):
        _, answer = await post(client, url, body, **headers)
        assert _holds(orjson.loads(answer)["body"]["messages"])
    _, answer = await post(client, f"{url}&results_only=1", bodies[-1])
    assert _holds(orjson.loads(answer)["body"]["messages"])


async def test_a_mark_never_means_a_message_of_another_session(client, upstream, start_proxy) -> None:
    sections = "defaults.sections={system: 0.1}"
    proxy = await start_proxy(*SETTINGS, sections, "defaults.truncate_system=true")
    one, other = _make_bodies()[5], _make_bodies()[4]
    for body, word in ((one, "first"), (other, "second")):
        body["messages"].insert(0, {"role": "system", "content": f"Heed the {word} rule.\n\n" * 900})
    before, _ = await _ask(client, proxy, upstream, other)
    _, decisions = await _ask(client, proxy, upstream, one, **{"x-trimtab-keep": "0"})
    assert "keep" in decisions
    assert (await _ask(client, proxy, upstream, other))[0] == before
    assert len(before[0]["content"]) < len(other["messages"][0]["content"])


async def test_a_replica_that_shortened_nothing_before_heeds_it(client, upstream, start_proxy, tmp_path) -> None:
    """It has served the session before without a reason to look for marks."""
    settings = [setting for setting in SETTINGS if "max_tool_result" not in setting]
    store, bodies = f"store=sqlite:///{tmp_path}/s.sqlite3", _make_bodies()
    one, other = [await start_proxy(*settings, store) for _ in range(2)]
    await _ask(client, one, upstream, bodies[5], **{"x-trimtab-keep": "last"})
    for body in bodies[6::4]:
        sent, decisions = await _ask(client, other, upstream, body)
        assert _holds(sent)
    assert "digest" in decisions


async def test_a_replica_that_only_counted_a_request_heeds_it(client, upstream, start_proxy, tmp_path) -> None:
    """Another one has answered that request, with the mark."""
    store, bodies = f"store=sqlite:///{tmp_path}/s.sqlite3", _make_bodies("messages")
    one, other = [await start_proxy(*SETTINGS, store) for _ in range(2)]
    for body in bodies[3:6]:
        await post(client, f"{other.url}/v1/messages/count_tokens", body)
    await _ask(client, one, upstream, bodies[5], "messages", **{"x-trimtab-keep": "last"})
    assert _holds((await _ask(client, other, upstream, bodies[6], "messages"))[0])
