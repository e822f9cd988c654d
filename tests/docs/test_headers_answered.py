"""Responses have the headers that docs/reference/headers.md promises, and lack those that it calls absent."""

import pytest
from support.client import post

OWN = {
    "i": "x-trimtab-request-id",
    "T": "server-timing",
    "o": "x-trimtab-outcome",
    "t": "x-trimtab-tokens",
    "s": "x-trimtab-sections",
    "d": "x-trimtab-decisions",
}
CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "\n".join(f"line {n} of a log" for n in range(3000))}
SMALL = [{"role": "user", "content": "look"}]
LONG = [*SMALL, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
HUGE_HEAD = [{"role": "system", "content": "word " * 9000}, *SMALL]


@pytest.mark.parametrize(
    ("messages", "headers", "expected", "sent"),
    [
        pytest.param(LONG, {}, "iTotsd", "less", id="a rule acted"),
        pytest.param(SMALL, {}, "iTots", "all", id="no rule acted"),
        pytest.param(LONG, {"x-trimtab-mode": "observe"}, "iTotsd", "all", id="observed"),
        pytest.param(LONG, {"x-trimtab-mode": "OFF"}, "iTo", "", id="off"),
        pytest.param(None, {}, "iTo", "", id="no chat completion"),
        pytest.param(SMALL, {"x-trimtab-mode": "on"}, "iTo", "", id="an error before the plan"),
        pytest.param(HUGE_HEAD, {}, "iTots", "none", id="the overflow error"),
    ],
)
async def test_the_answer_to_a_chat_has_the_headers_of_its_row(
    start_proxy, client, messages, headers, expected, sent
) -> None:
    """The sent tokens are those that went out: none if trimtab refused the request."""
    proxy = await start_proxy("defaults.context_window=8192", "defaults.max_tool_result_tokens=100")
    body = {"model": "m", **({} if messages is None else {"messages": messages})}
    answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", body, **headers)
    assert "".join(letter for letter, name in OWN.items() if name in answer.headers) == expected
    if "t" in expected:
        tokens = dict(item.split("=") for item in answer.headers["x-trimtab-tokens"].split(", "))
        original, left = int(tokens["original"]), int(tokens["sent"])
        assert {"all": left == original, "less": 0 < left < original, "none": left == 0}[sent]
