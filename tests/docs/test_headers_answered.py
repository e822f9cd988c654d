"""Responses have the headers that docs/reference/headers.md promises, and lack those that it calls absent."""

import pytest
from support.client import post
from support.reference_pages import read_rows, read_section

OWN = (
    "x-trimtab-request-id",
    "server-timing",
    "x-trimtab-outcome",
    "x-trimtab-tokens",
    "x-trimtab-sections",
    "x-trimtab-decisions",
)
CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "\n".join(f"line {n} of a log" for n in range(3000))}
SMALL = {"model": "m", "messages": [{"role": "user", "content": "look"}]}
LONG = {
    "model": "m",
    "messages": [*SMALL["messages"], {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT],
}
HUGE_HEAD = {"model": "m", "messages": [{"role": "system", "content": "word " * 9000}, *SMALL["messages"]]}

CHATS = [
    ("a rule acted", LONG, {}, "iTotsd"),
    ("no rule acted", SMALL, {}, "iTots"),
    ("observed", LONG, {"x-trimtab-mode": "observe"}, "iTotsd"),
    ("off", LONG, {"x-trimtab-mode": "OFF"}, "iTo"),
    ("no chat completion", {"x": 1}, {}, "iTo"),
    ("an error before the plan", SMALL, {"x-trimtab-mode": "on"}, "iTo"),
    ("the overflow error", HUGE_HEAD, {}, "iTots"),
]
"""A name, the body and headers sent, and the OWN headers of the response: a letter for each, in the order of OWN."""


def _find_own(headers) -> str:
    return "".join(letter for letter, name in zip("iTotsd", OWN, strict=True) if name in headers)


@pytest.mark.parametrize(("sent", "headers", "expected"), [row[1:] for row in CHATS], ids=[row[0] for row in CHATS])
async def test_the_answer_to_a_chat_has_the_headers_of_its_row(start_proxy, client, sent, headers, expected) -> None:
    proxy = await start_proxy("defaults.context_window=8192", "defaults.max_tool_result_tokens=100")
    answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", sent, **headers)

    assert _find_own(answer.headers) == expected


async def test_the_answer_at_another_path_has_none_or_says_that_it_was_passed(start_proxy, client) -> None:
    proxy = await start_proxy()
    for path in ("/v1/files", "/trimtab/health", "/trimtab/nothing", "/metrics"):
        async with client.get(proxy.url + path) as answer:
            assert _find_own(answer.headers) == ""
    async with client.get(f"{proxy.url}/v1/models") as answer:
        assert _find_own(answer.headers) == "o"


async def test_an_error_on_another_path_has_the_request_id(start_proxy, client) -> None:
    proxy = await start_proxy("client_keys=[a-key-of-our-own]")
    async with client.get(f"{proxy.url}/v1/models") as answer:
        assert (answer.status, _find_own(answer.headers)) == (401, "iTo")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_an_error_after_the_plan_tells_of_the_plan(start_proxy, client) -> None:
    proxy = await start_proxy("defaults.max_tool_result_tokens=100", "upstream.base_url=http://127.0.0.1:9/v1")
    answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", LONG)

    assert (answer.status, _find_own(answer.headers)) == (502, "iTotsd")


async def test_sent_tokens_are_those_that_went_out(start_proxy, client) -> None:
    """They equal the original tokens in mode observe, and are 0 if trimtab refused the request."""
    proxy = await start_proxy("defaults.context_window=8192", "defaults.max_tool_result_tokens=100")
    shown = []
    for sent, headers in ((LONG, {"x-trimtab-mode": "observe"}), (LONG, {}), (HUGE_HEAD, {})):
        answer, _ = await post(client, f"{proxy.url}/v1/chat/completions", sent, **headers)
        tokens = dict(item.split("=") for item in answer.headers["x-trimtab-tokens"].split(", "))
        shown.append((int(tokens["original"]), int(tokens["sent"])))

    (original, observed), (same, compacted), (_, refused) = shown
    assert observed == original == same
    assert 0 < compacted < original
    assert refused == 0


async def test_nothing_of_trimtabs_own_goes_upstream(start_proxy, client, upstream) -> None:
    """No header with the prefix is forwarded, even if it is spelt with underscores. Tracing headers are."""
    proxy = await start_proxy()
    headers = {"X-Trimtab-Mode": "observe", "x_trimtab_any": "1", "x-trimtab-key": "k", "traceparent": "00-1-2-01"}
    await post(client, f"{proxy.url}/v1/chat/completions", SMALL, **headers)

    received = {name.lower() for name, _ in upstream.chats[-1].headers}
    assert not [name for name in received if "trimtab" in name]
    assert "traceparent" in received


def test_the_page_has_a_row_for_each_of_these() -> None:
    rows = {
        row[0]: "".join(row[1:]) for row in read_rows(read_section("headers.md", "When a response header is absent"))
    }

    assert rows["a request that was planned, and a rule acted"] == "yes" * 3
    assert rows["a request that was planned, and no rule acted"] == "yesyesno"
    assert rows["another error of trimtab's own, before the request was planned"] == "yesnono"
    assert rows["`/trimtab/...` and `/metrics`"] == "no" * 3
