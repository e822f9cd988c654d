"""A llama.cpp server is asked what it says of itself, although its window is configured."""

from typing import Any

import orjson
import pytest
from aiohttp import web
from support.client import post, settle
from upstreams.recording import completion

CONFIGURED = "defaults.context_window=8000"
PROPS = {
    "default_generation_settings": {"n_ctx": 8192},
    "total_slots": 1,
    "build_info": "b6123-9fc",
    "chat_template_caps": {"supports_tools": False, "supports_tool_calls": False},
}
LISTED = {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 8192}}]}
TIMINGS = {"cache_n": 3, "prompt_n": 8, "predicted_n": 1}
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}]}


def serve(upstream, *, server: str = "", timings: dict[str, int] | None = None) -> None:
    """The upstream answers as llama.cpp does, and says so in its head, in its body, or nowhere."""

    async def answer(recorded, _request):
        if recorded.path.endswith("/models"):
            return web.json_response(LISTED)
        if recorded.path.endswith("/props"):
            return web.json_response(PROPS)
        if recorded.method == "GET" or not recorded.path.endswith("/chat/completions"):
            return web.Response(status=404)
        told = orjson.loads(completion(prompt_tokens=11, completion_tokens=1).body)
        headers = {"Server": server} if server else {}
        return web.json_response(told | ({"timings": timings} if timings else {}), headers=headers)

    upstream.answer, upstream.answers_questions = answer, True


@pytest.mark.parametrize(
    ("said", "times"),
    [({"server": "llama.cpp"}, 1), ({"timings": TIMINGS}, 1), ({"server": "nginx"}, 0)],
    ids=["header", "body", "another server"],
)
async def test_it_is_asked_once_after_its_first_answer(said, times, client, upstream, start_proxy):
    serve(upstream, **said)
    proxy = await start_proxy(CONFIGURED)
    models = proxy.services.models
    await models.settle()
    assert not [one for one in upstream.requests if one.method == "GET"]
    for _ in range(2):
        response, _ = await post(client, proxy.url + "/v1/chat/completions", BODY)
        assert (response.status, response.headers["x-trimtab-tokens"].endswith("limit=6000")) == (200, True)
        await settle(proxy)
        await models.settle()
    assert [one.path for one in upstream.requests].count("/v1/models") == times
    known = next(one for one in models.list_known() if one.name.tenant)
    reading = known.facts.reading
    assert (models.find_slots(known.name), reading.drops_tools, reading.drops_calls) == (
        times or None,
        *[times > 0] * 2,
    )


def make_agent(steps: int) -> list[dict[str, Any]]:
    """A session with a call, its result and a question in each step."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go on."}]
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "find", "arguments": f'{{"ship": {step}}}'}}
        messages += [
            {"role": "assistant", "content": f"Ship {step} waits. " * 6, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": f"Berth {step}. " * 6},
            {"role": "assistant", "content": f"Berth {step} is free. " * 6},
            {"role": "user", "content": f"And ship {step + 1}? " * 6},
        ]
    return messages


async def test_the_forwarded_prefix_changes_at_most_once_when_it_is_known_late(client, upstream, start_proxy):
    """Its summaries stand elsewhere and calls are not counted, also behind a cut that stands by then."""
    proxy = await start_proxy(
        "defaults.context_window=4000", "defaults.completion_reserve=100", "defaults.summary.when=never"
    )
    messages, sent, changed, known_at = make_agent(60), [], [], 2
    for number, stop in enumerate(range(202, 2 + 4 * 57, 4)):
        serve(upstream, server="llama.cpp" if number >= known_at else "")
        before, upstream.requests[:] = sent, []
        response, _ = await post(
            client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages[:stop]}
        )
        assert response.status == 200
        assert "x-trimtab-summary" in response.headers
        await proxy.services.lifecycle.idle.wait()
        sent = next(one.json["messages"] for one in upstream.requests if one.path.endswith("/chat/completions"))
        await proxy.services.models.settle()
        if before and sent[: len(before)] != before:
            changed.append(number)
    known = next(one for one in proxy.services.models.list_known() if one.name.tenant)
    assert known.facts.reading.drops_calls
    assert changed in ([], [known_at + 1])
