"""Questions for summaries to upstreams that refuse what trimtab adds, or that accept only a client's own session.

Law: each refused parameter costs one call, not one for each summary; a session that continues elsewhere gets summaries.
"""

from collections.abc import Callable

import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.spoken.all_dialects import DIALECTS
from support.sessions import make_session
from upstreams.recording import FakeUpstream, Recorded, write_note

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
NOTE = write_note("SUMMARY of the work so far.")

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
