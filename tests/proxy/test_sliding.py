"""Clients that slide a window of their own."""

from asking import SMALL, post
from sessions import make_session

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")


async def ask(client, proxy, messages: list[dict[str, object]]) -> str:
    """Which rule stood for the cut part."""
    response, _ = await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages})
    assert response.status == 200
    await proxy.services.summaries.settle()
    return response.headers["x-trimtab-decisions"].split(";")[0]


async def test_a_client_that_drops_its_beginning_gets_digests(client, upstream, start_proxy):
    """After three summaries that nobody found again no fourth is paid for; another client's sessions have theirs."""
    proxy = await start_proxy(*SETTINGS)
    system, task, *steps = make_session(80, result_words=200)["messages"][:-1]
    slid = [[system, task, *steps[start : start + 90]] for start in range(0, 20, 2)]
    assert [await ask(client, proxy, messages) for messages in slid] == ["summarise"] * 3 + ["digest"] * 7
    assert len(upstream.summaries) == 3
    other = make_session(60, result_words=300)["messages"][:-1]
    assert await ask(client, proxy, other) == "summarise"


async def test_many_sessions_under_one_key_are_no_sliding_window(client, upstream, start_proxy):
    """Each is summarised when it first comes, however many come at once."""
    proxy = await start_proxy(*SETTINGS)
    for number in range(8):
        messages = make_session(60, result_words=200)["messages"][:-1]
        for message in messages:
            if message["role"] == "tool":
                message["content"] = f"session {number}: {message['content']}"
        assert await ask(client, proxy, messages) == "summarise"
    assert len(upstream.summaries) == 8
