"""Questions for summaries to upstreams that refuse what trimtab adds, or that accept only a client's own session.

Law: each refused parameter costs one call, not one for each summary; a session that continues elsewhere gets summaries.
"""

from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.dialect import Dialect
from support.sessions import DATA, make_session, read_rows
from upstreams.recording import FakeUpstream, Recorded, write_note

WIRE = DATA / "wire"
SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
SESSIONS = 3
NOTE = write_note("SUMMARY of the work so far.")

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=str)
Refuse = Callable[[Recorded], web.Response | None]


def refuse(upstream: FakeUpstream, find: Refuse) -> list[Recorded]:
    """Let an upstream refuse requests as `find` does, and stream if it is asked to. Returns the refused ones."""
    plain, refused = upstream.answer, list[Recorded]()

    async def answer(recorded: Recorded, request: web.BaseRequest) -> web.StreamResponse:
        response = find(recorded)
        if response is not None:
            refused.append(recorded)
            return response
        if recorded.asks_for_summary and recorded.json.get("stream"):
            return web.Response(body=b"".join(recorded.dialect.write_events(NOTE)))  # without a content type
        return await plain(recorded, request)

    upstream.answer = answer
    return refused


def as_error(text: str) -> web.Response:
    return web.json_response({"error": {"message": text, "type": "invalid_request_error"}}, status=400)


FORMS: dict[str, Callable[[str], web.Response]] = {
    "param": lambda name: web.json_response({"error": {"message": "no", "param": name}}, status=400),
    "message": lambda name: as_error(f"Unsupported parameter: '{name}' is not supported with this model."),
    "detail": lambda name: web.json_response({"detail": f"Unsupported parameter: {name}"}, status=400),
    "flat": lambda name: web.json_response({"message": f"{name}: not allowed", "code": 1213}, status=422),
    "list": lambda name: web.json_response({"detail": [{"loc": ["body", name], "msg": "forbidden"}]}, status=422),
    "text": lambda name: web.Response(text=f"unknown field {name}", status=400),
    "success": lambda name: web.json_response({"error": {"message": f"{name} is not supported"}}),
    "unnamed": lambda _: as_error("Invalid request."),
}


@pytest.mark.parametrize(
    ("dialect", "form"),
    [*product(DIALECTS, ("param", "unnamed")), *zip(cycle(DIALECTS), [*FORMS][1:-1], strict=False)],
    ids=str,
)
async def test_each_refused_parameter_costs_one_call(
    dialect: Dialect, form: str, client, upstream, start_proxy
) -> None:
    """However the error is written. An upstream that accepts only streams is asked for one."""
    bad = {"temperature", *({"max_tokens", "max_output_tokens"} if dialect.name != "messages" else ())}

    def find(recorded: Recorded) -> web.Response | None:
        if not recorded.asks_for_summary:
            return None
        body = recorded.json
        named = next((name for name in body if name in bad), "stream" if body.get("stream") is False else None)
        return None if named is None else FORMS[form](named)

    refused = refuse(upstream, find)
    proxy = await start_proxy(*SETTINGS)
    for number in range(SESSIONS):
        session = make_session(40, result_words=200)
        messages = [{"role": "user", "content": f"Do part {number}."}, *session["messages"][2:-1]]
        body = dialect.write(messages, session["tools"], max_tokens=500)
        response, _ = await post(client, proxy.url.removesuffix("/v1") + dialect.path, body)
        assert response.headers["x-trimtab-decisions"].startswith("summarise;")
    await settle(proxy)
    assert len(upstream.summaries) - len(refused) >= SESSIONS
    suspected = form == "unnamed" and dialect.name == "chat"  # the limit's other name, too
    assert len(refused) == len(bad & {"temperature", dialect.completion_limit}) + 1 + suspected


@each_dialect
async def test_no_temperature_is_sent_if_none_is_configured(dialect: Dialect, client, upstream, start_proxy) -> None:
    """`summary.temperature: null`."""
    proxy = await start_proxy(*SETTINGS, "defaults.summary.temperature=null")
    session = make_session(40, result_words=200)
    await post(client, proxy.url.removesuffix("/v1") + dialect.path, dialect.write(session["messages"][:-1]))
    assert upstream.summaries
    assert not any("temperature" in asked.json for asked in upstream.summaries)


async def test_a_limit_that_is_too_large_is_lowered(client, upstream, start_proxy) -> None:
    """Once; the next summary keeps within it."""

    def find(recorded: Recorded) -> web.Response | None:
        tokens = recorded.json.get("max_tokens", 0)
        text = f"max_tokens is too large: {tokens}. This model supports at most 200 completion tokens."
        return as_error(text) if recorded.asks_for_summary and tokens > 200 else None

    refused = refuse(upstream, find)
    proxy = await start_proxy(*SETTINGS)
    for number in range(SESSIONS):
        task = {"role": "user", "content": f"Do part {number}."}
        body = {"model": "m", "messages": [task, *make_session(40, result_words=200)["messages"][2:-1]]}
        response, _ = await post(client, proxy.url + "/chat/completions", body)
        assert response.headers["x-trimtab-decisions"].startswith("summarise;")
    assert len(refused) == 1
    assert {asked.json["max_tokens"] for asked in upstream.summaries[1:]} == {200}


def refuse_strangers(recorded: Recorded) -> web.Response | None:
    """As the login of Claude Code: a system prompt of its own first, its client and its beta; nothing about limits."""
    body, system = recorded.json, recorded.json.get("system")
    first = system[0].get("text") if isinstance(system, list) else system
    is_known = first == "You are Claude Code, Anthropic's official CLI for Claude."
    is_known &= recorded.header("user-agent") == ["claude-cli/2.1.197 (external, cli)"]
    is_known &= "oauth-2025-04-20" in recorded.header("anthropic-beta")[0].split(",")
    is_known &= recorded.path.endswith("?beta=true") and "metadata" in body
    return None if is_known else as_error("This credential is only authorized for use with Claude Code.")


def refuse_as_chatgpt(recorded: Recorded) -> web.Response | None:
    """As ChatGPT's own backend. Source: OpenAI's documentation of Sign in with ChatGPT."""
    body = recorded.json
    wanted = {
        "Stream must be set to true": body.get("stream") is True,
        "Store must be set to false": body.get("store") is False,
        "Instructions are required": bool(body.get("instructions")),
        "Input must be a list": isinstance(body.get("input"), list),
        "System messages are not allowed": not any(item.get("role") == "system" for item in body["input"]),
        "unknown account": recorded.header("chatgpt-account-id") == ["acc"],
        "unknown client": recorded.header("originator") == ["codex_cli_rs"],
        "no session": recorded.header("session-id") == ["s1"],
    }
    wanted |= {
        f"Unsupported parameter: {name}": name not in body
        for name in ("max_output_tokens", "temperature", "top_p", "truncation", "metadata", "previous_response_id")
    }
    reason = next((reason for reason, is_met in wanted.items() if not is_met), None)
    return None if reason is None else web.json_response({"detail": reason}, status=400)


CLAUDE = {
    "User-Agent": "claude-cli/2.1.197 (external, cli)",
    "anthropic-beta": "oauth-2025-04-20,fine-grained",
    "anthropic-version": "2023-06-01",
    "x-app": "cli",
}
CODEX = {"originator": "codex_cli_rs", "session-id": "s1", "chatgpt-account-id": "acc", "Accept": "text/event-stream"}
SYSTEM = [
    {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."},
    {"type": "text", "text": "Be brief."},
]


@pytest.mark.parametrize("request_form", ["auto", "transcript"])
@pytest.mark.parametrize(
    ("dialect", "find", "headers", "members"),
    [
        (DIALECTS[2], refuse_strangers, CLAUDE, {"system": SYSTEM, "metadata": {"user_id": "u"}, "max_tokens": 500}),
        (
            DIALECTS[1],
            refuse_as_chatgpt,
            CODEX,
            {
                "instructions": "You are Codex.",
                "store": False,
                "stream": True,
                "include": ["reasoning.encrypted_content"],
            },
        ),
    ],
    ids=["Claude Code", "Codex"],
)
async def test_a_resumed_session_gets_summaries(  # noqa: PLR0917 - parameters and fixtures
    request_form, dialect, find, headers, members, client, upstream, start_proxy
) -> None:
    """It is too long from its first request, so no question fits its conversation; one of its own is of its session."""
    refused = refuse(upstream, find)
    proxy = await start_proxy(*SETTINGS, f"defaults.summary.request={request_form}")
    session = make_session(90, result_words=200)["messages"]
    path = dialect.path + ("?beta=true" if dialect.name == "messages" else "")
    for stop in (-101, -1):
        body = dialect.write([{"role": "user", "content": "Go."}, *session[2:stop]]) | members
        response, _ = await post(client, proxy.url.removesuffix("/v1") + path, body, **headers)
        assert response.status == 200
        assert response.headers["x-trimtab-decisions"].startswith("summarise;")
    await settle(proxy)
    reasons = [recorded for recorded in refused if not recorded.asks_for_summary]
    assert not reasons
    assert len(refused) <= 3


OF_ONE_REQUEST = ("content-", "accept", "host", "connection", "x-stainless-retry", "transfer-encoding", "authorization")


@pytest.mark.skipif(not WIRE.is_dir(), reason="the recorded data (../shared/data) is not here")
@pytest.mark.parametrize("name", ["claude", "codex", "codexold", "opencode", "qwen"])
async def test_a_question_carries_what_a_recorded_client_sends_with_each_request(
    name: str, client, upstream, start_proxy
) -> None:
    """Headers, system messages and the members that never change; asked about a conversation that is far too long."""
    recorded = next(row for row in read_rows(WIRE / f"{name}.jsonl") if row["method"] == "POST" and row["body"])
    body, path = recorded["body"], recorded["path"] + (f"?{recorded['query']}" if recorded["query"] else "")
    dialect = next(dialect for dialect in DIALECTS if dialect.path == recorded["path"])
    headers = {key: value for key, value in recorded["headers"] if not key.lower().startswith(OF_ONE_REQUEST)}
    added = dialect.write(make_session(220, result_words=800)["messages"][1:-1])[dialect.transcript]
    body[dialect.transcript] = [*body[dialect.transcript], *added]
    proxy = await start_proxy(
        "defaults.context_window=120000", "defaults.overflow_strategy=summarize", "defaults.summary.request=transcript"
    )
    response, _ = await post(client, proxy.url.removesuffix("/v1") + path, body, **headers)
    assert "summarise;" in response.headers["x-trimtab-decisions"]
    await settle(proxy)
    assert upstream.summaries
    for asked in upstream.summaries:
        assert asked.path == path
        assert {key: asked.header(key) for key in headers} == {key: [value] for key, value in headers.items()}
        kept = {"system", "instructions", "store", "include", "prompt_cache_key", "metadata", "client_metadata"}
        assert _pick(asked.json, kept) == _pick(body, kept)
        assert _find_systems(asked.json, dialect) == _find_systems(body, dialect)


def _pick(body: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name in names}


def _find_systems(body: dict[str, Any], dialect: Dialect) -> list[bytes]:
    return [orjson.dumps(one) for one in body[dialect.transcript] if one.get("role") in {"system", "developer"}]
