"""The text that a plan needs: written ahead, put off or waited for. Tested on values and over real HTTP."""

import asyncio
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from msgspec import structs
from support.client import SMALL, post, settle
from support.journeys import NOTE, MakeStages, Stages, make_reply, read_session
from support.sessions import make_session, requests_of

from trimtab.proxy.account.recorder import Phases
from trimtab.proxy.compaction.compactor import Planned
from trimtab.proxy.exchange.attempt import Call, Chosen
from trimtab.proxy.exchange.early_answer import Patience
from trimtab.proxy.exchange.summary import choose_summariser, choose_text, find_text, name_summary, write_ahead
from trimtab.proxy.summaries.service import SUMMARIES
from trimtab.rules.conversation import Conversation
from trimtab.rules.policy import Prices
from trimtab.rules.summary.request import Summary

CHEAP = ("prices.cached_input=0", "prices.cache_write=0", "prices.output=0")
"""Prices at which every cut pays and every summary is written ahead, also in a short session."""
SETTINGS = (
    *SMALL,
    *CHEAP,
    "defaults.cut=when_it_pays",
    "defaults.overflow_strategy=summarize",
    "defaults.summary.max_tokens=300",
)
TOOLS = make_session(1)["tools"]
AT_THRESHOLD = ("defaults.cut=at_threshold",)


def bodies() -> list[dict[str, Any]]:
    """The requests of a session, each longer by a step."""
    session = make_session(70, result_words=120)
    return [{"model": "m", "messages": messages, "tools": session["tools"]} for messages in requests_of(session)]


async def ask_all(client: Any, proxy: Any, requests: list[dict[str, Any]]) -> None:
    """Send a session's requests one after the other, with the pauses of a model's turn."""
    for body in requests:
        response, _ = await post(client, proxy.url + "/v1/chat/completions", body)
        assert response.status == 200
        await settle(proxy)


def count_moves(chats: list[Any]) -> int:
    """How often a request's forwarded bytes do not begin with those of the previous one."""
    prompts = [chat.json["messages"] for chat in chats]
    return sum(after[: len(before)] != before for before, after in pairwise(prompts))


async def read_metric(client: Any, proxy: Any, name: str) -> float:
    """One sample of /metrics; 0 if it is absent."""
    lines = (await (await client.get(proxy.url + "/metrics")).text()).splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)


async def test_summaries_are_written_before_a_request_needs_them(client, upstream, start_proxy):
    proxy = await start_proxy(*SETTINGS)
    await ask_all(client, proxy, bodies()[30:])
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


@pytest.mark.parametrize(
    ("when", "slots"), [("background", 1), ("idle", 3), ("needed", 1), ("never", 3), ("auto", 2), ("auto", 3)]
)
async def test_when_a_model_is_asked_is_as_configured(when, slots, client, upstream, start_proxy):
    """A server with few slots is asked for no summary between requests in a row, unless somebody wants it.

    The client's own turn would wait, or a session's prompt would leave the cache of its slot.
    """
    told = {"owned_by": "llamacpp", "id": "m", "meta": {"n_ctx": 8000}, "data": [], "total_slots": slots}
    upstream.models = orjson.dumps(told | {"data": [told]})
    proxy = await start_proxy(*SETTINGS, "defaults.context_window=auto", f"defaults.summary.when={when}")
    await ask_all(client, proxy, bodies()[30:])
    assert count_moves(upstream.chats) >= 2
    if when in {"idle", "never"} or (when == "auto" and slots <= 2):
        assert not upstream.summaries
        assert await read_metric(client, proxy, 'trimtab_summaries_total{model="m",result="digest"}') >= 2
    else:
        ahead = await read_metric(client, proxy, 'trimtab_summaries_total{model="m",result="prefetched"}')
        assert upstream.summaries
        assert bool(ahead) is (when != "needed")


ARRIVED = {
    "X-Grok-Conv-Id": "conversation",
    "X-Session-Affinity": "affinity",
    "X-Session-Id": "session",
    "Anthropic-Beta": "context-1m",
    "OpenAI-Beta": "responses=experimental",
    "X-Other": "no",
}
PLAINLY = ("Accept-Encoding", "identity")
KEYED = "upstreams={other: {base_url: 'http://other:9/v1', api_key: k}, plain: {base_url: 'http://plain:9/v1'}}"


@dataclass
class _Choice:
    """A request for which a text was chosen, and whether it waited for the text."""

    call: Call
    chosen: Chosen
    waited: bool
    planned: Planned

    @property
    def forwarded(self) -> Conversation:
        """The messages that go out."""
        return self.call.compactor.apply(self.chosen.planned, self.chosen.text).forwarded


async def choose(stages: Stages, steps: int, **more: Any) -> _Choice:
    """Choose the text of a session's request. A text that is waited for is written then."""
    call = await stages.prepare(read_session(steps, **more), **ARRIVED)
    planned = call.compactor.plan(call.request, call.view.policy)
    stages.client.arrived.clear()
    stages.client.released.clear()
    async with asyncio.TaskGroup() as group:
        choosing = group.create_task(choose_text(stages.services, call, planned, make_reply(), Phases("plan")))
        waiting = group.create_task(stages.client.arrived.wait())
        await asyncio.wait({choosing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waited = not choosing.done()
        stages.client.released.set()
        waiting.cancel()
    return _Choice(call, choosing.result(), waited, planned)


async def choose_first_cut(stages: Stages) -> tuple[int, _Choice]:
    """The choice for the first request of a session that is to be cut, and the number of its steps."""
    for steps in range(20, 60):
        choice = await choose(stages, steps)
        if choice.planned.plan.request is not None:
            return steps, choice
    raise AssertionError


async def write(stages: Stages, choice: _Choice) -> None:
    """Have the text written that is to be written ahead, and wait for it."""
    chosen = choice.chosen
    write_ahead(stages.services, choice.call, chosen, choice.call.compactor.apply(chosen.planned, chosen.text))
    assert chosen.summariser is not None
    summaries = stages.services.summaries
    while chosen.later and summaries.is_under_way(chosen.later, chosen.summariser):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)


@pytest.mark.parametrize(("more", "fitting"), [({}, 7500), ({"max_tokens": 400}, 7600)])
async def test_a_request_waits_for_a_text_only_if_it_does_not_fit_without(
    more: dict[str, int], fitting: int, make_stages: MakeStages
) -> None:
    """Prompt and requested completion must fit; the reserve may be used. A text that is put off is written later."""
    stages = await make_stages(*SETTINGS)
    was_put_off = 0
    for steps in range(30, 60):
        choice = await choose(stages, steps, **more)
        if choice.planned.plan.request is None:
            continue
        if choice.waited:
            break
        was_put_off += 1
        assert choice.forwarded == choice.planned.plan.conversation
        assert choice.forwarded.tokens <= fitting
        assert choice.chosen.later == choice.planned.plan.request
    assert was_put_off > 5
    assert choice.waited
    assert choice.planned.plan.conversation.tokens > fitting
    assert choice.chosen.text == Summary(NOTE, by_model=True)
    assert (choice.chosen.planned, choice.chosen.later) == (choice.planned, None)


async def test_the_first_request_at_a_threshold_waits_for_its_text(make_stages: MakeStages) -> None:
    """Although it would fit without the cut. The question is asked behind what the last request has sent."""
    stages = await make_stages(*SETTINGS, *AT_THRESHOLD)
    steps, choice = await choose_first_cut(stages)
    assert choice.waited
    assert choice.planned.plan.conversation.tokens < choice.planned.plan.fitting
    assert choice.chosen.text == Summary(NOTE, by_model=True)
    assert choice.chosen.planned == choice.planned
    [asked] = stages.client.asked
    assert asked["messages"][:10] == orjson.loads(read_session(steps).body)["messages"][:10]


async def test_a_cut_at_a_threshold_is_put_off_if_its_text_takes_long(
    make_stages: MakeStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = await make_stages(*SETTINGS, *AT_THRESHOLD)
    monkeypatch.setattr("trimtab.proxy.exchange.summary.THRESHOLD_WAIT_SECONDS", 0.0)
    steps, choice = await choose_first_cut(stages)
    assert choice.forwarded == choice.planned.plan.conversation
    await write(stages, choice)
    later = await choose(stages, steps + 1)
    assert (later.waited, len(stages.client.asked)) == (False, 1)
    assert later.chosen.text == Summary(NOTE, by_model=True)


async def test_a_stream_is_not_begun_for_a_cut_at_a_threshold(
    make_stages: MakeStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait ends when the first comment would be due. The client still gets the status of the upstream."""
    made = await make_stages(*SETTINGS, *AT_THRESHOLD)
    stages = replace(made, services=structs.replace(made.services, patience=Patience(0.01, 0.01)))
    monkeypatch.setattr("trimtab.proxy.exchange.summary.THRESHOLD_WAIT_SECONDS", 0.05)
    steps = 20
    while True:
        call = await stages.prepare(read_session(steps, stream=True))
        planned = call.compactor.plan(call.request, call.view.policy)
        if planned.plan.request is not None:
            break
        steps += 1
    stages.client.released.clear()
    reply = make_reply()
    chosen = await choose_text(stages.services, call, planned, reply, Phases("plan"))
    assert reply.response is None
    assert (chosen.text, chosen.later) == (None, planned.plan.request)


async def test_a_request_that_waited_at_a_threshold_has_no_further_text_written(make_stages: MakeStages) -> None:
    """One request causes at most one summary, also if the next cut is near already."""
    marks = ("defaults.high_water=0.5", "defaults.low_water=0.3")
    stages = await make_stages(*SETTINGS, *AT_THRESHOLD, *marks)
    steps = 20
    while True:
        call = await stages.prepare(read_session(steps))
        planned = call.compactor.plan(call.request, call.view.policy)
        if planned.plan.request is not None and planned.plan.prefetch is not None:
            break
        steps += 1
    first, again = [await choose_text(stages.services, call, planned, make_reply(), Phases("plan")) for _ in range(2)]
    assert first.text == again.text == Summary(NOTE, by_model=True)
    assert len(stages.client.asked) == 1
    assert (first.later, again.later) == (None, planned.plan.prefetch)


async def test_a_cut_is_put_off_by_what_would_be_sent_not_by_a_summarys_reserve(make_stages: MakeStages) -> None:
    """The present summary is far shorter than its reserve, so the next cut waits until the window is full."""
    stages = await make_stages(*SETTINGS, "defaults.summary.max_tokens=1500")
    choices = [await choose(stages, steps, result_words=60) for steps in (68, *range(94, 101))]
    first, second, *_ = [at for at, choice in enumerate(choices) if choice.waited]
    between = [(choice.forwarded, choice.chosen.planned.plan) for choice in choices[first + 1 : second]]
    assert all(forwarded.tokens <= plan.fitting for forwarded, plan in between)
    assert sum(plan.reserved_tokens > plan.fitting for _, plan in between) > 3


async def test_who_never_waits_has_the_list_at_once_and_for_good(make_stages: MakeStages) -> None:
    stages = await make_stages(*SETTINGS, "defaults.summary.wait_seconds=0")
    choices = [await choose(stages, steps) for steps in range(30, 60)]
    assert not any(choice.waited for choice in choices)
    cuts = [choice for choice in choices if choice.planned.plan.request is not None]
    put_off = [choice for choice in cuts if choice.chosen.later == choice.planned.plan.request]
    stood_in = [choice for choice in cuts if choice.chosen.planned is choice.planned]
    assert put_off
    assert stood_in
    assert all(choice.planned.plan.conversation.tokens > 7500 for choice in stood_in[:1])
    texts = {choice.planned.plan.request.key: choice.chosen.text for choice in stood_in if choice.planned.plan.request}
    for choice in stood_in:
        assert not choice.chosen.text.by_model
        assert choice.chosen.text == texts[choice.planned.plan.request.key]
    assert stages.client.asked == []


async def test_a_text_that_is_there_is_used(make_stages: MakeStages) -> None:
    # near the limit the next cut is made ready, too
    stages = await make_stages(*SETTINGS, *AT_THRESHOLD, "defaults.high_water=0.95")
    made, again = await choose(stages, 61), await choose(stages, 61)

    assert (made.waited, again.waited, len(stages.client.asked)) == (True, False, 1)
    assert again.chosen.text == made.chosen.text == Summary(NOTE, by_model=True)
    assert again.chosen.planned == again.planned
    assert again.chosen.later == again.planned.plan.prefetch is not None
    assert stages.count("summaries_total", model="m", result="hit") == 1


async def test_the_digest_stands_in_if_nobody_writes(make_stages: MakeStages) -> None:
    stages = await make_stages(*SETTINGS)
    stages.client.status = 401
    failed, paused = await choose(stages, 51), await choose(stages, 60)

    assert (failed.waited, paused.waited, len(stages.client.asked)) == (True, False, 1)
    for choice in (failed, paused):
        assert not choice.chosen.text.by_model
        newest = choice.planned.plan.request.span[-2].tool_calls[0].arguments.split('"')[3]
        assert f"{newest} (read" in choice.chosen.text.text
    assert paused.chosen.planned == paused.planned
    early = await choose(stages, 40)
    assert early.chosen.planned.plan.window.cut is not None


async def test_nobody_is_asked_for_a_request_that_is_only_observed(make_stages: MakeStages) -> None:
    stages = await make_stages(*SETTINGS, "mode=observe")
    choice, counted = await choose(stages, 51), await count(stages, 51)
    assert (choice.waited, choice.chosen.text, choice.chosen.planned) == (False, None, choice.planned)
    assert (counted.chosen.planned, counted.forwarded) == (choice.planned, choice.forwarded)
    assert stages.client.asked == []


async def count(stages: Stages, steps: int, **more: Any) -> _Choice:
    """What a request that only counts the tokens of a session would count."""
    call = await stages.prepare(read_session(steps, **more), **ARRIVED)
    planned = call.compactor.plan(call.request, call.view.policy)
    return _Choice(call, await find_text(stages.services, call, planned), False, planned)  # noqa: FBT003


@pytest.mark.parametrize(
    "settings",
    [(), ("defaults.summary.wait_seconds=0",), ("defaults.overflow_strategy=prune",), ("defaults.high_water=0.5",)],
    ids=["a model writes", "nobody waits", "no model is asked", "two cuts"],
)
async def test_a_count_is_that_of_the_request_whatever_is_stored(
    settings: tuple[str, ...], make_stages: MakeStages
) -> None:
    stages = await make_stages(*SETTINGS, *settings)
    stood_in, found = 0, 0
    for steps in range(25, 90, 4):
        counted = await count(stages, steps, max_tokens=400)
        asked = len(stages.client.asked)
        choice = await choose(stages, steps, max_tokens=400)
        assert counted.chosen.planned == choice.chosen.planned
        assert counted.chosen.later is None
        if choice.waited:
            stood_in += 1
            assert counted.chosen.text is None or not counted.chosen.text.by_model
            assert counted.forwarded.tokens <= choice.planned.plan.limit < choice.planned.plan.conversation.tokens
            cut = choice.planned.plan.window.cut
            difference = abs(counted.forwarded.tokens - choice.forwarded.tokens)
            assert difference < cut.reserved_tokens + cut.anchor_tokens
        else:
            assert len(stages.client.asked) == asked
            assert counted.forwarded == choice.forwarded
        again = await count(stages, steps, max_tokens=400)
        assert again.forwarded == choice.forwarded
        found += again.chosen.text is not None
    assert found > 5
    assert (stood_in > 1) is (len(stages.client.asked) > 1)


async def test_a_count_is_that_of_the_digest_while_nobody_writes(make_stages: MakeStages) -> None:
    stages = await make_stages(*SETTINGS)
    stages.client.status = 401
    await choose(stages, 51)
    counted = await count(stages, 40)
    again = await count(stages, 40)
    assert (again.chosen, again.forwarded) == (counted.chosen, counted.forwarded)
    paused = await choose(stages, 40)
    assert paused.planned.plan.request is not None
    assert (counted.chosen.planned, counted.forwarded) == (paused.chosen.planned, paused.forwarded)
    assert name_summary(counted.chosen, counted.call.compactor.apply(counted.planned, counted.chosen.text)) is None
    assert len(stages.client.asked) == 1


async def test_a_count_without_max_tokens_leaves_room_for_the_reserve(make_stages: MakeStages) -> None:
    stages = await make_stages(*SETTINGS, "defaults.completion_reserve=2000")
    beyond = 0
    for steps in range(30, 60):
        counted = await count(stages, steps)
        plan = counted.planned.plan
        if plan.request is None:
            continue
        beyond += plan.limit < plan.conversation.tokens <= plan.fitting
        assert counted.forwarded.tokens <= plan.limit
    assert beyond > 3


async def ask_ahead(stages: Stages, **more: Any) -> dict[str, Any]:
    """The question for a summary that is written ahead of the first cut of such a session."""
    choices = [await choose(stages, steps, **more) for steps in range(20, 34)]
    await write(stages, next(choice for choice in choices if choice.chosen.later is not None))
    (asked,) = stages.client.asked
    return asked


async def test_an_inline_question_takes_over_what_is_read_and_not_how_to_answer(make_stages: MakeStages) -> None:
    read = {
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit"},
        "cache_control": {"type": "ephemeral"},
        "verbosity": "low",
        "reasoning_effort": "low",
    }
    answered = {"stop": ["x"], "tool_choice": "required", "n": 2, "guided_choice": ["a"]}
    asked = await ask_ahead(await make_stages(*SETTINGS), **read, **answered, max_tokens=50)
    assert read.keys() < asked.keys()
    assert not answered.keys() & asked.keys()
    assert (asked["stream"], asked["max_tokens"], asked["temperature"]) == (False, 300, 0.2)


@pytest.mark.parametrize(
    "settings",
    [
        ("defaults.summary.model=small",),
        (KEYED, "defaults.summary.upstream=plain"),
        ("defaults.summary.request=transcript",),
        (),
    ],
    ids=["another model", "another upstream", "configured", "a prescribed form"],
)
async def test_a_question_is_asked_by_itself_if_no_cache_would_be_read(
    settings: tuple[str, ...], make_stages: MakeStages
) -> None:
    """Another model or another upstream has not read the conversation. A prescribed form would prevent a note."""
    stages = await make_stages(*SETTINGS, *settings)
    form = {} if settings else {"response_format": {"type": "json_object"}}
    asked = await ask_ahead(stages, tools=TOOLS, **form)
    assert "response_format" not in asked
    assert [message["role"] for message in asked["messages"] if message["role"] != "system"] == ["user"]
    assert "tools" not in asked


async def test_a_client_that_slides_has_nothing_written(make_stages: MakeStages) -> None:
    """Its next request will begin differently. So nothing is written ahead or while it waits."""
    stages = await make_stages(*SETTINGS)
    choice = await choose(stages, 33)
    assert choice.chosen.summariser is not None
    assert choice.chosen.later is not None
    for number in range(SUMMARIES):
        stages.services.sliding.note(choice.chosen.summariser.client_id, replace(choice.chosen.later, key=f"{number}"))
    await write(stages, choice)
    slid = await choose(stages, 60)

    assert (slid.waited, stages.client.asked) == (False, [])
    assert not slid.chosen.text.by_model


async def test_a_summary_is_asked_of_the_requests_own_upstream_on_its_own_account(make_stages: MakeStages) -> None:
    stages = await make_stages(*SETTINGS)
    call = await stages.prepare(replace(read_session(3), model="codellama-7b"), **ARRIVED)
    summariser = choose_summariser(stages.services, call)

    assert str(summariser.url) == "http://127.0.0.1:9/v1/chat/completions"
    assert tuple(summariser.find_headers().items()) == (
        ("Authorization", "Bearer sk-of-the-client"),
        *((name, value) for name, value in ARRIVED.items() if name != "X-Other"),
        PLAINLY,
    )
    assert summariser.secret == call.arrival.tenant.secret
    assert (summariser.model, summariser.payer.label) == ("codellama-7b", "other")
    assert summariser.token_ratio == call.view.facts.ratio > 1
    assert summariser.window_tokens == call.view.policy.limit_tokens(300)


@pytest.mark.parametrize(
    ("told", "target", "shown"),
    [
        ("api_key: k", "/v1/chat/completions", {"Authorization": "Bearer k"}),
        ("credential: none", "/v1/chat/completions", {}),
        (
            "credential: client",
            "/v1/chat/completions?key=sk-client",
            {"Authorization": "Bearer sk-of-the-client", "Cookie": "sid=a"},
        ),
    ],
)
async def test_another_upstream_is_shown_the_clients_credential_only_if_that_is_said(
    told: str, target: str, shown: dict[str, str], make_stages: MakeStages
) -> None:
    """Then in every form, but no other part of its headers or its query. Else its own key, if it has one."""
    other = f"upstreams={{other: {{base_url: 'http://other:9/v1', {told}}}}}"
    stages = await make_stages(*SETTINGS, other, "defaults.summary.upstream=other")
    call = await stages.prepare(read_session(3), **ARRIVED, Cookie="sid=a")
    arrival = structs.replace(call.arrival, target="/elsewhere?a=1&key=sk-client")
    summariser = choose_summariser(stages.services, structs.replace(call, arrival=arrival))

    assert (summariser.url.host, summariser.url.raw_path) == ("other", target)
    assert dict(summariser.find_headers()) == dict([PLAINLY]) | shown
    assert summariser.upstream == stages.services.config.upstreams["other"]


async def test_another_model_has_its_own_window_and_does_not_think_as_the_clients_does(make_stages: MakeStages) -> None:
    """The entry of that model in the configuration counts. The client's own model thinks if the request says so."""
    models = "models=[{match: small*, context_window: 4000, completion_reserve: 500}]"
    own, other = await make_stages(*SETTINGS), await make_stages(*SETTINGS, models, "defaults.summary.model=small/1")
    request, target = replace(read_session(3), is_reasoning=True), "/openai/deployments/{}/chat/completions?a=1"
    calls = [await each.prepare(request) for each in (own, other)]
    calls = [structs.replace(one, arrival=structs.replace(one.arrival, target=target.format("my"))) for one in calls]
    mine, theirs = [choose_summariser(each.services, one) for each, one in zip((own, other), calls, strict=True)]
    assert theirs.url.raw_path_qs == target.format("small%2F1")  # the path decides which model answers

    policy = other.services.config.policy_for("small/1").to_policy(Prices())
    assert policy.context_window == 4000
    assert (theirs.answer_tokens, mine.answer_tokens) == (2000, 4000)
    assert (mine.model, mine.is_reasoning) == ("m", True)
    window_tokens = policy.limit_tokens(300)
    assert (theirs.model, theirs.is_reasoning, theirs.window_tokens) == ("small/1", False, window_tokens)
