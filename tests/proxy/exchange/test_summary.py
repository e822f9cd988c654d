"""The text that a plan needs, over real HTTP: written ahead, put off, waited for."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from support.client import SMALL, post, settle
from support.sessions import make_session, requests_of
from upstreams.recording import completion, hold_summaries

STEPS = 70
SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")


def bodies(steps: int = STEPS, **more: Any) -> list[dict[str, Any]]:
    """The requests of a session, each longer by a step."""
    session = make_session(steps, result_words=120)
    return [
        {"model": "m", "messages": messages, "tools": session["tools"], **more} for messages in requests_of(session)
    ]


async def ask_all(client: Any, proxy: Any, requests: list[dict[str, Any]], *, calm: bool = True) -> None:
    """Send a session's requests one after the other, as fast as a model would answer or as fast as can be."""
    for body in requests:
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
        if calm:
            await settle(proxy)


def count_moves(chats: list[Any]) -> int:
    """How often a request did not go on from the one before."""
    prompts = [chat.json["messages"] for chat in chats]
    return sum(after[: len(before)] != before for before, after in pairwise(prompts))


async def read_metric(client: Any, proxy: Any, name: str) -> float:
    """One sample of /metrics; 0 where it is not there."""
    lines = (await (await client.get(proxy.url + "/metrics")).text()).splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)


async def test_summaries_are_written_before_a_request_needs_them(client, upstream, start_proxy):
    """Each is asked for behind what was just forwarded, so that the upstream's prompt cache is read; nobody waits."""
    proxy = await start_proxy(*SETTINGS)
    await ask_all(client, proxy, bodies())
    moves = count_moves(upstream.chats)
    assert moves >= 2
    assert len(upstream.summaries) in {moves, moves + 1}
    for number, asked in enumerate(upstream.requests):
        if asked.asks_for_summary:
            before = [recorded for recorded in upstream.requests[:number] if not recorded.asks_for_summary][-1]
            *prefix, question = asked.json["messages"]
            assert prefix == before.json["messages"][: len(prefix)]
            assert question["role"] == "user"
            assert asked.json["tools"] == before.json["tools"]
    assert await read_metric(client, proxy, 'trimtab_summaries_total{model="m",result="prefetched"}') >= moves - 1
    assert await read_metric(client, proxy, 'trimtab_summaries_total{model="m",result="made"}') == 0
    assert await read_metric(client, proxy, 'trimtab_prefix_kept_ratio_count{model="m"}') >= STEPS - 2


@pytest.mark.parametrize(("more", "most"), [({}, 8000), ({"max_tokens": 400}, 7600)])
async def test_a_cut_without_its_text_is_put_off_while_the_request_fits(more, most, client, upstream, start_proxy):
    """While the summary is being written the prefix stays as it was; only a full window makes a request wait.

    It is full if it does not hold the prompt and the completion asked for, and not before: the reserve is ours.
    """
    release = hold_summaries(upstream)
    proxy = await start_proxy(*SETTINGS)
    get, waits = proxy.services.summaries.get, asyncio.Event()

    def wait(task: Any) -> Any:
        waits.set()
        return get(task)

    proxy.services.summaries.get = wait
    requests = bodies(**more)
    sent = []
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(waits.wait())
        for body in requests:
            asking = group.create_task(post(client, proxy.url + "/v1/chat/completions", body))
            done, _ = await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if waiting in done:
                break
            tokens = asking.result()[0].headers["x-trimtab-tokens"]
            sent.append(int(tokens.partition("sent=")[2].partition(",")[0]))
        assert count_moves(upstream.chats) == 0
        assert len(upstream.summaries) == 1
        release.set()
        waits.set()
    assert 10 < len(sent) < len(requests)
    assert most - 300 < sent[-1] <= most
    assert "SUMMARY of the work so far." in upstream.chats[-1].json["messages"][1]["content"]


async def test_two_cuts_without_their_texts_are_put_off_while_the_request_fits(client, upstream, start_proxy):
    """The next cut may be due before the first one's text is there: what fits the window goes out as it came."""
    release = hold_summaries(upstream)
    proxy = await start_proxy(*SETTINGS, "defaults.high_water=0.5", "defaults.low_water=0.2")
    sent, cuts = [], 0
    for body in bodies(max_tokens=400):
        asking = asyncio.ensure_future(post(client, proxy.url + "/v1/chat/completions", body))
        done, _ = await asyncio.wait({asking}, timeout=2)
        if not done:
            release.set()
            await asking
            break
        tokens = asking.result()[0].headers["x-trimtab-tokens"]
        sent.append(int(tokens.partition("sent=")[2].partition(",")[0]))
        cuts = max(cuts, len(upstream.summaries))
    assert count_moves(upstream.chats[: len(sent)]) == 0
    assert cuts >= 2
    assert 7600 - 300 < sent[-1] <= 7600


async def test_a_request_waits_by_what_would_be_sent_not_by_a_summarys_reserve(client, upstream, start_proxy):
    """The summary that stands is far shorter than its reserve: the next cut is put off until the window is full."""
    proxy = await start_proxy(*SETTINGS, "defaults.summary.max_tokens=1500")
    sent, release = [8000], None
    for body in bodies(max_tokens=400):
        asking = asyncio.ensure_future(post(client, proxy.url + "/v1/chat/completions", body))
        done, _ = await asyncio.wait({asking}, timeout=2)
        if not done:
            break
        tokens = asking.result()[0].headers["x-trimtab-tokens"]
        sent.append(int(tokens.partition("sent=")[2].partition(",")[0]))
        if release is None:
            await settle(proxy)
            if len(sent) > 2 and sent[-1] < sent[-2]:
                release = hold_summaries(upstream)
    assert release is not None
    release.set()
    await asking
    assert 7600 - 300 < sent[-1] <= 7600


async def test_a_model_that_calls_a_tool_is_asked_again_with_the_transcript(client, upstream, start_proxy):
    """An inline question has the tools in it; one that is answered with nothing to read is put in the other form."""
    plain = upstream.answer

    async def call_tools(recorded: Any, request: Any) -> Any:
        if recorded.asks_for_summary and "tools" in recorded.json:
            return completion("")
        return await plain(recorded, request)

    upstream.answer = call_tools
    proxy = await start_proxy(*SETTINGS)
    await ask_all(client, proxy, bodies())
    forms = ["tools" in asked.json for asked in upstream.summaries]
    assert forms[:2] == [True, False]
    assert [message["role"] for message in upstream.summaries[1].json["messages"]] == ["user"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"response_format": {"type": "json_object"}}, id="a prescribed form"),
        pytest.param({"n": 1}, id="transcript"),
    ],
)
async def test_where_it_cannot_be_asked_inline_the_transcript_is_written_out(more, client, upstream, start_proxy):
    """An answer of a prescribed form would be no note; and `request: transcript` is obeyed."""
    form = "auto" if "response_format" in more else "transcript"
    proxy = await start_proxy(*SETTINGS, f"defaults.summary.request={form}")
    await ask_all(client, proxy, bodies(**more))
    assert upstream.summaries
    assert all(len(asked.json["messages"]) == 1 for asked in upstream.summaries)
    assert all("response_format" not in asked.json for asked in upstream.summaries)


async def test_an_inline_question_takes_over_what_is_read_and_not_how_to_answer(client, upstream, start_proxy):
    """Unknown fields and those of the answer's form go; what is rendered, or names the cache, stays."""
    proxy = await start_proxy(*SETTINGS)
    more = {
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit"},
        "cache_control": {"type": "ephemeral"},
        "verbosity": "low",
        "reasoning_effort": "low",
        "stop": ["x"],
        "tool_choice": "required",
        "n": 2,
        "guided_choice": ["a"],
    }
    await ask_all(client, proxy, bodies(**more, max_tokens=50))
    asked = upstream.summaries[0].json
    assert {"prompt_cache_key", "prompt_cache_options", "cache_control", "verbosity", "reasoning_effort"} < asked.keys()
    assert not {"stop", "tool_choice", "n", "guided_choice"} & asked.keys()
    assert (asked["stream"], asked["max_tokens"], asked["temperature"]) == (False, 300, 0.2)


async def test_a_question_is_led_to_the_same_cache_as_the_conversation(client, upstream, start_proxy):
    """Headers by which an upstream finds the session's cache go along; others of the client's do not."""
    proxy = await start_proxy(*SETTINGS)
    leading = {"X-Grok-Conv-Id": "conversation", "X-Session-Affinity": "affinity", "X-Session-Id": "session"}
    for body in bodies():
        await post(client, proxy.url + "/v1/chat/completions", body, **leading, **{"X-Other": "no"})
        await settle(proxy)
    asked = upstream.summaries[0]
    assert {name: asked.header(name) for name in leading} == {name: [value] for name, value in leading.items()}
    assert asked.header("X-Other") == []
