"""`count_tokens` counts what would be forwarded, whether the summary of a cut is stored or not. Over real HTTP."""

from typing import Any

from aiohttp import web
from support.client import post
from support.dialects.to_messages import to_messages
from support.sessions import make_session, requests_of
from upstreams.recording import answer_plainly

from trimtab.proxy.models.hypotheses import FIRST_TEST

PATH = "/v1/messages"
COUNT = f"{PATH}/count_tokens"
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
