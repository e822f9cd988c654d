"""The answer says what was done to its request."""

import pytest
from support.client import CHAT, SMALL, post
from support.sessions import make_session

OUTCOME = "x-trimtab-outcome"
ASKED = {"model": "m", "input": "hi"}
LARGE = {"model": "m", "messages": [{"role": "user", "content": "word " * 1000}]}


@pytest.mark.parametrize(
    ("body", "headers", "outcome"),
    [
        (CHAT, {}, "unchanged"),
        ({"model": "m", **make_session(40)}, {}, "compacted"),
        (CHAT, {"x-trimtab-mode": "observe"}, "observe"),
        (CHAT, {"x-trimtab-mode": "off"}, "off"),
        ({"model": "m"}, {}, "undecodable"),
        (LARGE, {}, "too_large"),
        (CHAT, {"x-trimtab-mode": "on"}, "refused"),
    ],
)
async def test_the_outcome_is_that_of_the_metrics(body, headers, outcome, client, start_proxy, log):
    """It is known when the head is sent."""
    limits = ["limits.max_body_bytes=2048"] if outcome == "too_large" else []
    proxy = await start_proxy(*SMALL, *limits)
    answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", body, **headers)

    assert answer.headers[OUTCOME] == outcome
    assert log.lines[-1]["outcome"] == outcome


@pytest.mark.parametrize("mode", ["enforce", "observe"])
async def test_a_history_that_the_upstream_holds_is_a_parameter(mode, client, start_proxy):
    """Such a conversation is not compacted as a whole, so its length is not known here."""
    proxy = await start_proxy(f"mode={mode}")
    outcome = {"enforce": "unchanged", "observe": "observe"}[mode]
    for more, parameter in (({}, ""), ({"previous_response_id": "resp_1"}, ";history=upstream")):
        answer, _ = await post(client, f"{proxy.url}/v1/responses", ASKED | more)
        assert answer.headers[OUTCOME] == outcome + parameter
