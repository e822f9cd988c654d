"""The stage that heeds a cold cache, on values. tests/end_to_end/test_cold_caches.py has it over real sockets."""

from dataclasses import replace
from typing import NoReturn

import pytest
from hypothesis import given
from msgspec import structs
from support.builders import assistant, transcripts, user
from support.client import SMALL, post, settle
from support.journeys import MakeStages, Stages, make_reply, read_session
from support.sessions import make_session

from trimtab.proxy.account.outcome import Answered
from trimtab.proxy.exchange.attempt import Call, Passed
from trimtab.proxy.exchange.cold import (
    COLD_CACHE,
    COMPACT_NOW,
    WAS_CUT,
    cut_at_cold_cache,
    cut_on_wish,
    find_lifetime,
    find_previous,
    find_session,
    name_cache,
    prepare_cold,
    read_command,
    recall_earlier,
    remember,
    uses_cache,
)
from trimtab.proxy.models.records import ModelName
from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries.cold_cuts import ColdCuts
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.rules.conversation import Role
from trimtab.rules.window.state import ColdCut


@given(transcripts())
def test_the_previous_request_ends_where_the_last_answer_begins(messages) -> None:
    messages = (*messages, user("Go on."))
    at = find_previous(messages)
    assert 0 <= at <= len(messages)
    if any(message.role is Role.ASSISTANT for message in messages):
        assert messages[at].role is Role.ASSISTANT
    assert find_previous((*messages, assistant("{"))) == at
    assert find_previous((*messages, assistant("Done."), user("And on."))) > at


def test_only_a_last_message_of_the_user_is_a_command() -> None:
    for said, words in (
        (" /compact\n", ""),
        ("/compact keep\nthe names", "keep\nthe names"),
        ("/compacted", None),
        ("no", None),
    ):
        assert read_command([assistant("Done."), user(said)]) == words
        assert read_command([user(said), assistant(said)]) is None


def _keep_cuts(now: float = 100.0) -> ColdCuts:
    """Cuts in a store that counts as one that is kept."""
    store = MemoryStore(ttl_seconds=1e6)
    store.name = "sqlite"
    return ColdCuts(store, clock=lambda: now)


async def test_an_earlier_request_is_found_if_the_last_answer_was_not_asked_for_here(make_stages: MakeStages) -> None:
    stages = await make_stages(*SMALL)
    request = read_session(20)
    call = await stages.prepare(request)
    planned = call.compactor.plan(request, call.view.policy)
    cold_cuts = _keep_cuts()
    session = find_session(structs.replace(stages.services, cold_cuts=cold_cuts), call, planned)
    assert session is not None
    hashes, messages = planned.plan.hashes, planned.plan.conversation.messages
    assert recall_earlier(cold_cuts, session, planned.plan) is None
    earlier = find_previous(messages[: find_previous(messages)])
    await cold_cuts.note_time(session, hashes[earlier], hashes[0], shares=False)
    assert recall_earlier(cold_cuts, session, planned.plan) == 100.0


@pytest.mark.parametrize(("setting", "counts"), [("defaults.mode=enforce", True), ("defaults.mode=observe", False)])
async def test_only_requests_that_are_compacted_have_a_session(setting, counts, make_stages: MakeStages) -> None:
    """And only if the store is kept, the upstream holds no part of the transcript, and the transcript is not short."""
    stages = await make_stages(*SMALL, setting)
    request = read_session(20)
    call = await stages.prepare(request)
    planned = call.compactor.plan(request, call.view.policy)
    assert find_session(stages.services, call, planned) is None
    services = structs.replace(stages.services, cold_cuts=_keep_cuts())
    assert (find_session(services, call, planned) is not None) is counts
    continued = structs.replace(planned, original=replace(planned.original, continues=True))
    assert find_session(services, call, continued) is None
    short = call.compactor.plan(read_session(3), call.view.policy)
    assert find_session(services, call, short) is None


@pytest.mark.parametrize("is_count", [True, False])
async def test_at_a_warm_cache_a_long_session_is_planned_as_it_was(is_count: bool, make_stages: MakeStages) -> None:  # noqa: FBT001
    stages = await make_stages(*SMALL)
    request = read_session(60)
    call = await stages.prepare(request)
    planned = call.compactor.plan(request, call.view.policy)
    assert planned.plan.window.is_long
    services = structs.replace(stages.services, cold_cuts=_keep_cuts())
    if is_count:
        call = structs.replace(call, request=replace(request, codec=Counting()))
    heeded, again = await cut_at_cold_cache(services, call, planned, fail_to_plan, make_reply())
    assert again is planned
    assert heeded.cold == call.cold


async def test_a_cut_that_was_made_as_it_was_asked_for_is_not_planned_again(make_stages: MakeStages) -> None:
    """The client that sends such a request again is told that the cut was made."""
    stages = await make_stages(*SMALL)
    request = read_session(60)
    call = await stages.prepare(request, **{"x-trimtab-compact": "now"})
    planned = call.compactor.plan(request, call.view.policy)
    call = structs.replace(call, cold={planned.plan.here: ColdCut.NOW})
    services = structs.replace(stages.services, cold_cuts=_keep_cuts())
    _, again = await cut_on_wish(services, call, planned, fail_to_plan)
    assert again is planned
    assert [(one.rule, one.reason) for one in call.ledger.entries] == [(COMPACT_NOW, WAS_CUT)]


class Counting(type(CHAT)):
    """Its requests ask for a number of tokens."""

    is_count = True


async def fail_to_plan(call: Call) -> NoReturn:
    """Nothing has changed, so there is nothing to plan."""
    raise AssertionError(call)


async def test_a_configured_lifetime_replaces_the_known_one(make_stages: MakeStages) -> None:
    """0 turns it off."""
    for setting, seconds in (("auto", None), ("900", 900.0), ("0", 0.0)):
        stages = await make_stages(*SMALL, f"upstream.cache_seconds={setting}")
        call = await stages.prepare(read_session(3))
        assert find_lifetime(stages.services, call) == seconds
        assert uses_cache(call.route.upstream) is (setting != "0")


async def test_the_retention_is_read_from_members_not_from_texts(make_stages: MakeStages) -> None:
    stages = await make_stages(*SMALL, "upstream.base_url=https://api.openai.com/v1")
    call = await stages.prepare(read_session(3, prompt_cache_retention="24h"))
    assert find_lifetime(stages.services, call) == 86_400
    quoted = read_session(3)
    quoted = replace(quoted, body=quoted.body.replace(b"harbour", rb"\"ttl\": \"24h\""))
    assert find_lifetime(stages.services, structs.replace(call, request=quoted)) == 300


ASKS = (*SMALL, "defaults.overflow_strategy=summarize", "upstream.cache_seconds=300", "prices.output=0.1")
KNOWN = ("upstream.cache_seconds=auto", "upstream.base_url=https://api.openai.com/v1")
"""An upstream whose lifetime is in the table: 300 seconds, too."""


async def _attempt_after(stages: Stages, idle_seconds: float, *, slides: bool = False) -> list[str]:
    """The rules that decide about a long session after a silence."""
    cold_cuts, request = _keep_cuts(10_000.0), read_session(22, result_words=200)
    stages = replace(stages, services=structs.replace(stages.services, cold_cuts=cold_cuts))
    call = await stages.prepare(request)
    planned = call.compactor.plan(request, call.view.policy)
    session, hashes = find_session(stages.services, call, planned), planned.plan.hashes
    assert session is not None
    at = find_previous(planned.plan.conversation.messages)
    cold_cuts.clock = lambda: 10_000.0 - idle_seconds
    await cold_cuts.note_time(session, hashes[at], hashes[0], shares=False)
    cold_cuts.clock = lambda: 10_000.0
    if slides:
        stages.services.sliding.slides = lambda *_: True
    attempt = await stages.attempt(request)
    return [entry.rule for entry in attempt.call.ledger.entries]


@pytest.mark.parametrize(
    ("idle_seconds", "more", "slides", "is_cut"),
    [
        (300.0, (), False, False),
        (301.0, (), False, True),
        (300.0, KNOWN, False, False),
        (301.0, KNOWN, False, True),
        (301.0, ("defaults.summary.wait_seconds=0",), False, False),
        (301.0, (), True, False),
    ],
)
async def test_a_model_is_asked_at_a_cold_cache_only_if_the_request_may_wait(
    make_stages: MakeStages, idle_seconds: float, more: tuple[str, ...], *, slides: bool, is_cut: bool
) -> None:
    """Not if the operator lets no request wait, and not for a client that slides its own window."""
    stages = await make_stages(*ASKS, *more)
    rules = await _attempt_after(stages, idle_seconds, slides=slides)

    assert (COLD_CACHE in rules) is is_cut
    assert (len(stages.client.asked) > 0) is is_cut
    assert not stages.services.summaries._under_way  # a call that nobody waits for would be paid, too


@pytest.mark.parametrize(
    ("settings", "is_written"), [((), True), (("mode=observe",), False), (("upstream.cache_seconds=0",), False)]
)
async def test_a_summary_is_written_ahead_only_for_a_session_that_a_cold_cache_may_cut(
    settings: tuple[str, ...], make_stages: MakeStages, *, is_written: bool
) -> None:
    prices = "prices={input: 1, cached_input: 0.01, output: 0.5}"
    stages = await make_stages(*ASKS, prices, "defaults.summary.max_tokens=100", *settings)
    services = structs.replace(stages.services, cold_cuts=_keep_cuts())
    attempt = await stages.attempt(read_session(14, result_words=200))
    assert attempt.chosen.planned.plan.window.cold_summary is not None
    prepare_cold(services, attempt, Answered(ends_turn=True))
    await services.summaries.settle()
    assert len(stages.client.asked) == is_written


def test_each_model_of_each_upstream_has_its_own_cache() -> None:
    names = [ModelName(url, model, vocabulary) for url in "ab" for model in "mn" for vocabulary in "vw"]
    assert len({name_cache(name) for name in names}) == 4
    assert all(name_cache(one) == name_cache(other) for one, other in zip(names[::2], names[1::2], strict=True))


async def test_an_answer_after_a_silence_teaches_how_long_the_cache_lives(make_stages: MakeStages) -> None:
    stages = await make_stages(*SMALL, "upstream.base_url=https://api.openai.com/v1")
    services = structs.replace(stages.services, cold_cuts=_keep_cuts())
    attempt = await stages.attempt(read_session(20))
    call = structs.replace(attempt.call, idle_seconds=1500.0)
    await remember(services, Passed("undecodable"), Answered(5000, 4900))
    await remember(services, structs.replace(attempt, call=call, body=None), Answered(5000, 4900))
    assert not services.cold_cuts._forwarded.items()
    await remember(services, structs.replace(attempt, call=call), Answered(5000, 4900))
    assert len(services.cold_cuts._forwarded.items()) == 1
    name = call.view.name
    assert services.lifetimes.find(call.arrival.tenant.id, name.base_url, name.model) == 1500
    assert services.lifetimes.find("other", name.base_url, name.model) == 300


async def test_every_answer_is_remembered_in_a_store_that_is_kept(client, start_proxy, tmp_path) -> None:
    proxy = await start_proxy(*SMALL, "upstream.cache_seconds=300", f"store=sqlite:///{tmp_path}/a.sqlite3")
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", **make_session(20)})
    await settle(proxy)
    assert len(proxy.services.cold_cuts._forwarded.items()) == 1
