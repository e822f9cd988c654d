"""Requests that an upstream refuses for thinking that does not fit what trimtab has changed."""

from typing import Any

import orjson
import pytest
from support.client import post
from upstreams.recording import FakeUpstream, Recorded, error
from upstreams.speech.messages import refuse

PATH = "/v1/messages"
REFUSAL = "messages.1.content.0: Invalid `signature` in `thinking` block."
LONG = "\n".join(f"line {number} of a long log" for number in range(2000))
SHORT = ("defaults.max_tool_result_tokens=500",)


def write_body(steps: int = 1, model: str = "claude-opus-5-5") -> dict[str, Any]:
    """A session whose results are longer than trimtab forwards them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the logs."}]
    for step in range(steps):
        thought = {"type": "thinking", "thinking": f"so {step}", "signature": "c2VhbA=="}
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": LONG}
        messages += [{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    return {"model": model, "max_tokens": 500, "messages": messages}


def is_changed(recorded: Recorded) -> bool:
    """Whether a request is not what the client wrote, and does not allow that thinking is dropped."""
    return b"omitted" in recorded.body and b"drop_block" not in recorded.body


@pytest.fixture
def send(client, upstream: FakeUpstream, start_proxy):
    """A function that starts a proxy before such an upstream, and returns one that sends a body through it."""

    async def begin(*settings: str, refuses: Any = is_changed) -> Any:
        plain = upstream.answer
        proxy = await start_proxy(*SHORT, *settings)

        async def answer(recorded: Recorded, request: Any) -> Any:
            return refuse(REFUSAL) if refuses(recorded) else await plain(recorded, request)

        upstream.answer = answer

        async def send_one(body: dict[str, Any]) -> int:
            upstream.requests.clear()
            response, _ = await post(client, proxy.url + PATH, body)
            return response.status

        return send_one

    return begin


async def test_what_is_refused_for_a_change_goes_out_as_the_client_wrote_it(send, upstream: FakeUpstream):
    """The next request of the session asks at once that such thinking may be dropped. Another session does not."""
    send_one, body = await send("defaults.context_window=400000"), write_body()
    assert await send_one(body) == 200
    assert [is_changed(one) for one in upstream.requests] == [True, False]
    assert upstream.requests[1].json == body

    assert await send_one(write_body(2)) == 200
    assert [b"drop_block" in one.body for one in upstream.requests] == [True]

    other = write_body()
    other["messages"][0]["content"] = "Read the other logs."
    assert await send_one(other) == 200
    assert len(upstream.requests) == 2


async def test_what_does_not_fit_as_the_client_wrote_it_may_lose_thinking(send, upstream: FakeUpstream):
    """It is sent again with the setting."""
    send_one = await send("defaults.context_window=12000", "defaults.completion_reserve=1000")
    assert await send_one(write_body()) == 200
    assert [b"drop_block" in one.body for one in upstream.requests] == [False, True]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-6"])
async def test_a_refusal_of_the_clients_own_bytes_is_the_clients(model, send, upstream: FakeUpstream):
    """After one more request at most. Nothing is remembered of the session."""
    send_one = await send("defaults.context_window=400000", refuses=lambda _: True)
    for _ in range(2):
        assert await send_one(write_body(model=model)) == 400
        assert [b"drop_block" in one.body for one in upstream.requests] == [False, False]


async def test_other_refusals_are_the_clients(send, upstream: FakeUpstream):
    """Nothing is sent again for them."""
    send_one = await send("defaults.context_window=400000")

    async def refuse_otherwise(*_: Any) -> Any:
        return error(400, message="messages: at least one message is required")

    upstream.answer = refuse_otherwise
    assert await send_one(write_body()) == 400
    assert len(upstream.requests) == 1
    assert orjson.loads(upstream.requests[0].body)["model"] == "claude-opus-5-5"
