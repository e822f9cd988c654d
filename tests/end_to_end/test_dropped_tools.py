"""Declarations of tools that the operator drops are sent with no attempt and no question, in each dialect."""

import orjson
from support.client import SMALL, post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.tools_validity import name_tools
from support.sessions import make_session
from upstreams import strict
from upstreams.recording import error

NAMES = ("read_file", "mcp__jira__list", "write", "mcp__jira__add")


@each_dialect
async def test_dropped_tools_are_sent_with_no_attempt_and_no_question(dialect, start_proxy, client, upstream):
    """The upstream refuses a first attempt for its length; within a smaller window, a summary is asked for."""
    plain = upstream.answer

    async def refuse_once(recorded, request):
        if not recorded.asks_for_summary and len(upstream.chats) == 1:
            said = "This model's maximum context length is 6000 tokens. However, your messages resulted in 9000 tokens."
            return error(
                400, message=said, type="invalid_request_error", param="messages", code="context_length_exceeded"
            )
        return await plain(recorded, request)

    upstream.answer = refuse_once
    drops = ('defaults.drop_tools=["mcp__*"]', "defaults.overflow_strategy=summarize")
    proxy = await start_proxy(*SMALL, *drops, "defaults.context_window=100000")
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES]
    body = dialect.write(make_session(60)["messages"][:-1], tools, max_tokens=500)
    answer, _ = await post(client, proxy.url + dialect.path, orjson.dumps(body))

    assert answer.headers["x-trimtab-decisions"].startswith("drop_tools;")
    assert len(upstream.chats) == 2
    assert len(upstream.chats[1].body) < len(upstream.chats[0].body)
    small = await start_proxy(*SMALL, *drops)
    await post(client, small.url + dialect.path, orjson.dumps(body))
    assert upstream.summaries
    for one in upstream.chats:
        assert name_tools(one.json) == ["read_file", "write"]
    assert strict.DIALECTS[dialect.path.removeprefix("/v1")].check(upstream.chats[1].json) == []
    assert not [one for one in upstream.summaries if b"mcp__" in one.body]
