"""What is added for the provider's prompt cache, through a running proxy to hosts that are known to take it.

Law: everything else of the forwarded body is as with `cache: off`. The client sees no refusal of what was added.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from aiohttp import web
from msgspec import structs
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from support.journeys import MakeStages, read_session
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, Recorded, answer_plainly

from trimtab.proxy.exchange.compact import help_cache
from trimtab.proxy.server.app import Proxy
from trimtab.proxy.wire.cache_help import CacheHelp
from trimtab.rules.text.markers import INTRODUCTION

CUT = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
STEPS = 50
HOSTS = {"chat": "api.openai.com", "responses": "api.openai.com", "messages": "api.anthropic.com"}
MODELS = {"chat": "gpt-5.6-sol", "responses": "gpt-5.6-sol", "messages": "claude-opus-5"}
MARKERS = ("cache_control", "prompt_cache_breakpoint")
SYSTEM = "You are a coding agent. " + "Mind the harbour's rules and its tides. " * 80


def _write_bodies(dialect: Dialect, steps: int, model: str, **more: Any) -> list[dict[str, Any]]:
    session = make_session(steps, result_words=300, system=SYSTEM)
    limit = {"max_tokens": 500} if dialect is MESSAGES else {}
    return [
        {**dialect.write(messages, session["tools"], model=model, **limit), **more} for messages in requests_of(session)
    ]


async def _ask(client: Any, proxy: Proxy, dialect: Dialect, bodies: list[Any]) -> list[Any]:
    answers = []
    for body in bodies:
        response, _ = await post(client, proxy.url + "/v1" + dialect.path.removeprefix("/v1"), body)
        assert response.status == 200
        await settle(proxy)
        answers.append(response)
    return answers


def _list_chats(upstream: FakeUpstream) -> list[Recorded]:
    """The client's requests, without trimtab's questions about context windows."""
    return [request for request in upstream.chats if request.method == "POST"]


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _walk(inner)


def _strip(value: Any) -> Any:
    """Without markers; a content of one text part is a string."""
    if isinstance(value, list):
        listed = [_strip(item) for item in value]
        is_text = len(listed) == 1 and isinstance(listed[0], dict) and listed[0].keys() == {"type", "text"}
        return listed[0]["text"] if is_text else listed
    if isinstance(value, dict):
        return {name: _strip(item) for name, item in value.items() if name not in MARKERS}
    return value


def _list_decisions(response: Any) -> list[str]:
    return [item.strip().partition(";")[0] for item in response.headers.get("x-trimtab-decisions", "").split(",")]


@each_dialect
async def test_only_the_additions_differ_from_a_proxy_without_them(dialect, client, upstream, start_known):
    bodies = _write_bodies(dialect, STEPS, MODELS[dialect.name])
    proxy = await start_known(HOSTS[dialect.name], *CUT)
    answers = await _ask(client, proxy, dialect, bodies)
    helped = [request.body for request in _list_chats(upstream)]
    _check_questions([request.json for request in upstream.summaries], orjson.loads(helped[0]))
    upstream.requests.clear()
    await _ask(client, await start_known(HOSTS[dialect.name], *CUT, "upstream.cache=off"), dialect, bodies)
    plain = [request.body for request in _list_chats(upstream)]

    keys = {orjson.loads(body).get("prompt_cache_key") for body in helped}
    assert len(keys) == 1
    assert (None in keys) == (dialect is MESSAGES)
    cut = [INTRODUCTION.encode() in body for body in plain]
    assert 5 < sum(cut) < len(cut) - 5
    for sent, other, is_cut in zip(helped, plain, cut, strict=True):
        with_help, without = orjson.loads(sent), orjson.loads(other)
        with_help.pop("prompt_cache_key", None)
        assert _strip(with_help) == _strip(without)
        marked = [part for part in _walk(with_help) if any(name in part for name in MARKERS)]
        assert len(marked) == is_cut
        assert all(INTRODUCTION in part["text"] for part in marked)
        if not is_cut:
            first = b"".join(sent.split(b'"prompt_cache_key":"', 1)[-1:])
            assert sent == other if dialect is MESSAGES else first[first.index(b",") + 1 :] == other[1:]
    assert _count_moves(helped, dialect) == _count_moves(plain, dialect) <= STEPS / 6
    wanted = {"cache_control"} if dialect is MESSAGES else {"cache_key", "cache_breakpoint"}
    assert wanted <= set(_list_decisions(answers[-1]))


def _check_questions(asked: list[dict[str, Any]], first: dict[str, Any]) -> None:
    """A question has the key of the session, the same settings, and the markers of what is before it."""
    inline = [body for body in asked if body.get("tools")]
    assert len(inline) >= 2
    for body in inline:
        assert body.get("prompt_cache_key") == first.get("prompt_cache_key")
        assert body["tools"] == first["tools"]
    for body in inline[1:]:
        (part,) = [part for part in _walk(body) if INTRODUCTION in str(part.get("text", ""))]
        assert any(name in part for name in MARKERS)


def _count_moves(bodies: list[bytes], dialect: Dialect) -> int:
    """How often the forwarded bytes up to the last element are not the beginning of the next body."""
    key = b'"%b":' % dialect.transcript.encode()
    starts = [body[body.index(key) :] for body in bodies]
    prefixes = [orjson.loads(body)[dialect.transcript] for body in bodies]
    moves = sum(after[: len(before)] != before for before, after in pairwise(prefixes))
    ended = [start[: start.rindex(orjson.dumps(prefix[-1]))] for start, prefix in zip(starts, prefixes, strict=True)]
    assert sum(not after.startswith(before) for before, after in pairwise(ended)) == moves
    return moves


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES], ids=str)
async def test_the_clients_own_key_stays_alone(dialect, client, upstream, start_known):
    """Even if it is null, or written with escapes."""
    proxy = await start_known("api.openai.com")
    for own in (b'"prompt_cache_key":null', b'"prompt_cache_\\u006bey":"mine"'):
        body = orjson.dumps(dialect.write([{"role": "user", "content": "hi"}], model="gpt-4o"))
        body = b"{" + own + b"," + body[1:]
        (answer,) = await _ask(client, proxy, dialect, [body])
        assert _list_chats(upstream)[-1].body == body
        assert answer.headers["x-trimtab-outcome"] == "unchanged"


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES], ids=str)
async def test_a_request_with_a_key_alone_is_no_compaction(dialect, client, upstream, start_known):
    body = orjson.dumps({**dialect.write([{"role": "user", "content": "hi"}], model="gpt-4o"), "seed": 1})
    proxy = await start_known("api.openai.com")
    (answer,) = await _ask(client, proxy, dialect, [body])
    sent = _list_chats(upstream)[-1].body
    key = orjson.loads(sent)["prompt_cache_key"]
    assert sent == b'{"prompt_cache_key":"%b",' % key.encode() + body[1:]
    assert answer.headers["x-trimtab-outcome"] == "cache_help"
    assert answer.headers["x-trimtab-decisions"].startswith("cache_key;saved=0;")


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES], ids=str)
async def test_a_refused_key_is_dropped_and_not_sent_again(dialect, client, upstream, start_known):
    body = orjson.dumps(dialect.write([{"role": "user", "content": "hi"}], model="gpt-4o"))

    async def refuse(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if b"prompt_cache_key" in recorded.body:
            message = "Unrecognized request argument supplied: prompt_cache_key"
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        return await answer_plainly(recorded, request)

    upstream.answer = refuse
    proxy = await start_known("api.openai.com")
    first, second = await _ask(client, proxy, dialect, [body, body])
    assert [b"prompt_cache_key" in request.body for request in _list_chats(upstream)] == [True, False, False]
    assert _list_chats(upstream)[-1].body == body
    assert _list_decisions(first) == ["cache_key", "cache_refused"]
    assert first.headers["x-trimtab-outcome"] == second.headers["x-trimtab-outcome"] == "unchanged"


async def test_an_error_that_only_quotes_the_name_teaches_nothing(client, upstream, start_known):
    async def refuse(_recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"error": {"message": "what is prompt_cache_key doing here?"}}, status=400)

    plain, upstream.answer = upstream.answer, refuse
    proxy = await start_known("api.openai.com")
    body = CHAT.write([{"role": "user", "content": "prompt_cache_key"}], model="gpt-4o")
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
    assert response.status == 400
    assert len(_list_chats(upstream)) == 2
    upstream.answer = plain
    await _ask(client, proxy, CHAT, [body])
    assert "prompt_cache_key" in _list_chats(upstream)[-1].json


LIMIT = "This model's maximum context length is 5000 tokens. However, your messages resulted in 9000 tokens."
TOO_LONG = {"error": {"message": LIMIT, "code": "context_length_exceeded"}}


async def test_a_prompt_that_is_too_long_is_still_sent_again_without_what_was_refused(client, upstream, start_known):
    seen: list[tuple[bool, bool]] = []

    async def refuse(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if not recorded.body.startswith(b"{") or recorded.asks_for_summary:
            return await answer_plainly(recorded, request)
        is_keyed, is_long = b"prompt_cache_key" in recorded.body, len(recorded.body) > 20_000
        seen.append((is_keyed, is_long))
        if is_keyed:
            return web.json_response({"error": {"message": "unknown prompt_cache_key"}}, status=400)
        return web.json_response(TOO_LONG, status=400) if is_long else await answer_plainly(recorded, request)

    upstream.answer = refuse
    proxy = await start_known("api.openai.com", "defaults.overflow_strategy=prune")
    body = _write_bodies(CHAT, STEPS, "gpt-4o")[-1]
    response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
    assert response.status == 200
    assert seen == [(True, True), (False, True), (False, False)]
    assert {"cache_key", "cache_refused"} <= set(_list_decisions(response))


async def test_after_a_fault_the_attempt_is_sent_as_it_was(make_stages: MakeStages) -> None:
    stages = await make_stages()
    attempt = await stages.attempt(replace(read_session(3), cache=CacheHelp(frozenset({"cache_key"}))))
    assert (await help_cache(stages.services, attempt)).outcome == "cache_help"
    assert await help_cache(structs.replace(stages.services, workers=None), attempt) is attempt
    assert stages.count("fail_open_total", phase="cache") == 1


async def test_the_second_attempt_for_the_length_has_the_same_key(client, upstream, start_known):
    """What is added is added to each attempt."""

    async def refuse(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        if recorded.body.startswith(b"{") and not recorded.asks_for_summary and len(recorded.body) > 20_000:
            return web.json_response(TOO_LONG, status=400)
        return await answer_plainly(recorded, request)

    upstream.answer = refuse
    proxy = await start_known("api.openai.com", "defaults.overflow_strategy=prune")
    await _ask(client, proxy, CHAT, _write_bodies(CHAT, STEPS, "gpt-4o")[-1:])
    first, second = (request.json for request in _list_chats(upstream))
    assert first["prompt_cache_key"] == second["prompt_cache_key"]
    assert len(second["messages"]) <= len(first["messages"])


async def test_claude_behind_chat_completions_gets_rolling_markers(client, upstream, start_known):
    """On system prompt, summary and newest result."""
    proxy = await start_known("openrouter.ai", *CUT)
    bodies = _write_bodies(CHAT, STEPS, "anthropic/claude-opus-5")[::8]
    answers = await _ask(client, proxy, CHAT, bodies)
    sent = [request.json for request in _list_chats(upstream)]
    for body in sent:
        messages = body["messages"]
        marked = [at for at, message in enumerate(messages) if any("cache_control" in part for part in _walk(message))]
        is_cut = any(INTRODUCTION in str(message["content"]) for message in messages[:3])
        assert marked == sorted({0, 1, len(messages) - 1} if is_cut else {0, len(messages) - 1})
        for at in marked:
            assert "cache_control" not in messages[at]
            assert messages[at]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert answers[0].headers["x-trimtab-outcome"] == "cache_help"
    assert _list_decisions(answers[0]) == ["cache_control"]
