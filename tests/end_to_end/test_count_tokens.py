"""`count_tokens` counts what would be forwarded. Over real HTTP."""

from typing import Any

from aiohttp import web
from support.client import post
from support.dialects.spoken.all_dialects import MESSAGES
from support.sessions import make_session
from upstreams.recording import answer_plainly

from trimtab.proxy.models.hypotheses import FIRST_TEST

TOO_LONG = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}


async def ask(client: Any, url: str, body: dict[str, Any]) -> int:
    """Send a request. Returns the tokens that were sent, as a header tells them."""
    response, answer = await post(client, url, body)
    assert response.status == 200, answer
    return int(response.headers["x-trimtab-tokens"].partition("sent=")[2].partition(",")[0])


async def test_a_count_is_no_test_of_what_was_learned(client: Any, upstream: Any, start_proxy: Any) -> None:
    """A test goes out uncut. The answer to a count proves nothing, and the next request is cut as before."""

    async def answer(recorded: Any, request: Any) -> Any:
        if recorded.path == MESSAGES.path and len(recorded.body) > 20_000:
            return web.json_response(TOO_LONG, status=400)
        return await answer_plainly(recorded, request)

    upstream.answer = answer
    proxy = await start_proxy("defaults.overflow_strategy=prune")
    url = proxy.url + MESSAGES.path
    body = MESSAGES.write(make_session(90, result_words=120)["messages"][:-1], max_tokens=100)
    await ask(client, url, body)
    await proxy.services.lifecycle.idle.wait()
    await proxy.services.models.settle()
    sent = await ask(client, url, body)
    counts = {await ask(client, f"{url}/count_tokens", body) for _ in range(2 * FIRST_TEST)}
    assert counts == {sent}
