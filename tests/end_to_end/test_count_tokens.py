"""`count_tokens` counts what would be forwarded, whether the summary of a cut is stored or not. Over real HTTP."""

from typing import Any

import pytest
from aiohttp import web
from support.client import SMALL, post, settle
from support.dialects.messages_validity import check_body
from support.dialects.to_messages import to_messages
from support.sessions import make_session, requests_of
from upstreams.recording import answer_plainly

from trimtab.proxy.models.hypotheses import FIRST_TEST

PATH = "/v1/messages"
COUNT = f"{PATH}/count_tokens"
LIMIT = 7000
SAME_RESERVE = "defaults.completion_reserve=1024"
"""What a request with max tokens of 1000 reserves, too, as that is rounded up. A count has no max tokens."""
TOO_LONG = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}


def bodies(steps: int, **more: Any) -> list[dict[str, Any]]:
    """The requests of a session, each longer by a step."""
    session = make_session(steps, result_words=120)
    parts = [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]
    return [to_messages(part) | more for part in parts]


async def ask(client: Any, proxy: Any, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Send a request. Returns the tokens sent and the decisions, as the headers tell them."""
    if path == COUNT:
        body = {name: value for name, value in body.items() if name != "max_tokens"}
    response, answer = await post(client, proxy.url + path, body)
    assert response.status == 200, answer
    sent = response.headers["x-trimtab-tokens"].partition("sent=")[2].partition(",")[0]
    return int(sent), response.headers.get("x-trimtab-decisions", "")


@pytest.mark.parametrize("strategy", ["auto_compact", "summarize", "prune"])
async def test_a_count_is_at_most_the_limit_before_the_summary_is_stored_and_exact_after(
    strategy: str, client: Any, upstream: Any, start_proxy: Any
) -> None:
    """No model is asked for a count, and the digest of a count is not kept: the request gets a model's summary."""
    proxy = await start_proxy(*SMALL, SAME_RESERVE, f"defaults.overflow_strategy={strategy}")
    body = bodies(90, max_tokens=1000)[-1]
    counted, _ = await ask(client, proxy, COUNT, body)
    first = upstream.requests[-1].json
    assert upstream.summaries == []
    sent, decisions = await ask(client, proxy, PATH, body)
    await settle(proxy)
    forwarded = upstream.chats[-1].json
    again, _ = await ask(client, proxy, COUNT, body)

    assert sent == again
    assert upstream.requests[-1].json["messages"] == forwarded["messages"]
    assert sent <= LIMIT - 24
    assert counted <= LIMIT - 24
    assert ("digest" in decisions) is (strategy == "prune")
    assert (first["messages"] == forwarded["messages"]) is (strategy == "prune")
    assert bool(upstream.summaries) is (strategy != "prune")


async def test_a_count_for_every_turn_is_at_most_the_limit(client: Any, upstream: Any, start_proxy: Any) -> None:
    """Nobody sends the requests that are counted, so no summary is ever stored."""
    proxy = await start_proxy(*SMALL)
    before, cuts = 0, 0
    for body in bodies(80)[::3]:
        counted, decisions = await ask(client, proxy, COUNT, body)
        assert counted <= LIMIT
        assert check_body(upstream.requests[-1].json, counts_only=True) == []
        cuts += "digest" in decisions
        before = max(before, counted)
    assert cuts > 7
    assert before > LIMIT - 500
    assert upstream.summaries == []


async def test_a_count_is_no_test_of_what_was_learned(client: Any, upstream: Any, start_proxy: Any) -> None:
    """A test goes out uncut. The answer to a count proves nothing, and the next request is cut as before."""

    async def answer(recorded: Any, request: Any) -> Any:
        if recorded.path == PATH and len(recorded.body) > 20_000:
            return web.json_response(TOO_LONG, status=400)
        return await answer_plainly(recorded, request)

    upstream.answer = answer
    proxy = await start_proxy("defaults.overflow_strategy=prune")
    body = bodies(90, max_tokens=100)[-1]
    await ask(client, proxy, PATH, body)
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.models.settle()
    sent, _ = await ask(client, proxy, PATH, body)
    counts = {(await ask(client, proxy, COUNT, body))[0] for _ in range(2 * FIRST_TEST)}
    assert counts == {sent}
