"""Clients that slide a window of their own."""

from support.client import SMALL, post, settle
from support.sessions import make_session

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")


def name_all(messages: list[dict[str, object]], name: str) -> list[dict[str, object]]:
    """The messages of a session with words of its own."""
    return [message | {"content": f"{name}: {message['content']}"} for message in messages]


async def send(client, proxy, messages: list[dict[str, object]]) -> str:
    """Send one request, and wait for the summary that it may have started. Returns its decisions."""
    response, _ = await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages})
    assert response.status == 200
    await settle(proxy)
    return response.headers.get("x-trimtab-decisions", "")


async def ask(client, proxy, messages: list[dict[str, object]]) -> str:
    """The rule that replaced the cut part."""
    return (await send(client, proxy, messages)).split(";")[0]


async def test_a_client_that_drops_its_beginning_gets_digests(client, upstream, start_proxy):
    """After three summaries that were never found again, no fourth is paid for. Other clients get summaries."""
    proxy = await start_proxy(*SETTINGS)
    system, task, *steps = make_session(80, result_words=200)["messages"][:-1]
    slid = [[system, task, *steps[start : start + 70]] for start in range(0, 20, 2)]
    assert [await ask(client, proxy, messages) for messages in slid] == ["summarise"] * 3 + ["digest"] * 7
    assert len(upstream.summaries) == 3
    assert (
        await ask(client, proxy, name_all(make_session(60, result_words=300)["messages"][:-1], "other")) == "summarise"
    )


async def test_many_sessions_under_one_key_are_no_sliding_window(client, upstream, start_proxy):
    """Each is summarised when it first comes, however many come at once."""
    proxy = await start_proxy(*SETTINGS)
    for number in range(8):
        messages = name_all(make_session(36, result_words=200)["messages"][:-1], f"session {number}")
        assert await ask(client, proxy, messages) == "summarise"
    assert len(upstream.summaries) == 8


async def test_a_client_that_slides_within_the_window_gets_digests_too(client, upstream, start_proxy):
    """Its requests fit, so summaries would be written ahead, but none would ever be used."""
    proxy = await start_proxy(*SETTINGS)
    system, task, *steps = make_session(90, result_words=200)["messages"][:-1]
    for start in range(0, 60, 2):
        await send(client, proxy, [system, task, *steps[start : start + 72]])
    assert 1 <= len(upstream.summaries) <= 3


async def test_a_client_that_masks_its_old_results_gets_digests(client, upstream, start_proxy):
    """Only the results change. The text between them shows that it is the same session."""
    proxy = await start_proxy(*SETTINGS)
    messages = make_session(80, result_words=260)["messages"][:-1]
    for stop in range(110, 160, 2):
        old = [message | ({"content": "old"} if message["role"] == "tool" else {}) for message in messages[: stop - 44]]
        await send(client, proxy, [*old, *messages[stop - 44 : stop]])
    assert 1 <= len(upstream.summaries) <= 3


async def test_a_client_that_stops_sliding_has_summaries_again(client, upstream, start_proxy):
    """As soon as its transcript grows, the same text is found several times."""
    proxy = await start_proxy(*SETTINGS)
    system, task, *steps = make_session(150, result_words=260)["messages"][:-1]
    for start in range(0, 12, 2):
        await send(client, proxy, [system, task, *steps[start : start + 70]])
    written = len(upstream.summaries)
    await send(client, proxy, [system, task, *steps[12:102]])
    assert len(upstream.summaries) == written  # three texts, in two parts each, are enough to tell
    rules = [await ask(client, proxy, [system, task, *steps[10:stop]]) for stop in range(102, 220, 2)]
    assert rules[0] == "digest"
    assert rules[-1] == "summarise"
