"""What an evaluation prepares before a model is asked."""

from dataclasses import replace

import orjson
import pytest
from msgspec import structs
from upstreams.examinee import Examinee, make_session
from upstreams.recording import FakeUpstream

from trimtab.proxy.catalogue.prices import DEFAULT, LOCAL, PriceList, find_listed
from trimtab.proxy.cli.evaluate.rehearsal import NAMES, Tokens, read_session
from trimtab.proxy.cli.evaluate.setup import (
    Item,
    Options,
    Setup,
    add_up,
    find_view,
    prepare,
    show_key,
    tell_price,
)
from trimtab.proxy.compaction import load_compactor
from trimtab.proxy.compaction.engine import Variant
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config

pytestmark = pytest.mark.covered

OPTIONS = Options(None, NAMES, 10, "user-key")


def _config(upstream: FakeUpstream, *settings: str) -> Config:
    return load_config(settings=(f"upstream.base_url={upstream.url}", *settings), environment={})


async def _prepare(
    config: Config, options: Options = OPTIONS, window_tokens: int | None = 16_000, data: bytes = make_session(40)
) -> Setup:
    session = read_session(data)
    view = await find_view(config, session.model, window_tokens, options.key)
    return prepare(config, options, view, session, Variant(load_compactor("m", vocabulary="heuristic"), view.policy))


async def test_a_window_that_nobody_names_is_asked_of_the_upstream(upstream: FakeUpstream) -> None:
    """The request is like the proxy's own, with the user's key."""
    view = await find_view(_config(upstream, "models=[{match: m, context_window: 9000}]"), "m", None, None)
    assert (view.policy.context_window, view.window_from, upstream.questions) == (9000, "configured", [])
    upstream.models = orjson.dumps({"data": [{"id": "m", "max_model_len": 20_000}]})
    view = await find_view(_config(upstream), "m", None, "user-key")
    assert (view.policy.context_window, view.window_from) == (20_000, "discovered")
    assert upstream.questions[0].header("Authorization") == ["Bearer user-key"]


async def test_a_key_is_shown_where_a_clients_is(upstream: FakeUpstream) -> None:
    """If the operator has a key for an upstream, that one is sent. A named upstream gets no client's key."""
    config = _config(upstream, f"upstreams={{other: {{base_url: '{upstream.url}'}}}}")
    assert show_key(config.upstream, "k") == [("Authorization", "Bearer k")]
    assert show_key(config.upstream, None) == []
    assert show_key(config.upstreams["other"], "k") == []
    assert show_key(_config(upstream, "upstream.api_key=own").upstream, "k") == []


async def test_servers_are_those_of_the_configuration(upstream: FakeUpstream) -> None:
    """A judge with an upstream of its own is asked there."""
    other = "upstreams={other: {base_url: 'http://127.0.0.1:9/v2', api_key: own}}"
    setup = await _prepare(_config(upstream, other, "models=[{match: judge, upstream: other}]"))
    assert setup.find_upstream("exam-model").base_url == upstream.url
    assert setup.find_upstream("judge").base_url == "http://127.0.0.1:9/v2"
    assert "user-key" not in repr(setup.options)


async def test_the_estimate_is_what_is_asked_at_most(upstream: FakeUpstream, examinee: Examinee) -> None:
    """A call for each summary, part, answer and grade; none for an arm that does not fit, or is not wanted."""
    setup = await _prepare(_config(upstream))
    arms = setup.make_arms()
    items = {item.what: item.tokens for item in setup.estimate(arms)}
    assert [arm.name for arm in arms if arm.problem] == ["none"]
    assert {what: tokens.calls for what, tokens in items.items()} == {
        "summaries": len(setup.summaries),
        "questions": len(setup.parts),
        "answers": 30,
        "grades": 30,
    }
    assert items["answers"].prompt > 10 * sum(arm.tokens for arm in arms if arm.problem is None)
    # A model's summary may be as long as its cut has reserved.
    (trimtab,) = (arm for arm in arms if arm.name == "trimtab")
    answers = next(item for item in setup.estimate([trimtab]) if item.what == "answers").tokens
    assert answers.prompt >= 10 * setup.rehearsal.last.original_plan.reserved_tokens
    assert add_up(setup.estimate(arms)) == sum(tokens.calls for tokens in items.values())
    one = structs.replace(setup, options=replace(OPTIONS, arms=("digest",)))
    assert [item.tokens.calls for item in one.estimate(one.make_arms())] == [0, len(setup.parts), 10, 10]
    assert upstream.requests == examinee.kinds == []


async def test_a_model_may_hold_more_than_is_compacted_for(upstream: FakeUpstream) -> None:
    """The window of the option is used to compact; the whole session is asked in the model's real window."""
    upstream.models = orjson.dumps({"data": [{"id": "exam-model", "max_model_len": 200_000}]})
    setup = await _prepare(_config(upstream), window_tokens=16_000)
    arms = {arm.name: arm for arm in setup.make_arms()}
    assert arms["trimtab"].tokens < 16_000 < arms["none"].tokens
    assert arms["none"].problem is None
    assert (await _prepare(_config(upstream), window_tokens=None)).parts == ()


async def test_parts_fit_the_models_window(upstream: FakeUpstream) -> None:
    setup = await _prepare(_config(upstream), window_tokens=4000)
    assert setup.parts
    assert all(setup.rehearsal.variant.compactor.count(part.text) <= 4000 * 0.6 for part in setup.parts)


OPENAI = "https://api.openai.com/v1"
GPT = find_listed(OPENAI, "gpt-4o")


def _tell(*items: Item, prices: PriceList = GPT) -> str:
    return " ".join(tell_price(items, prices))


def test_the_price_names_calls_tokens_and_money_where_it_is_known() -> None:
    """What is not asked has no line, and needs no price. A hundred calls cost a hundred times one such call."""
    asked = Item("answers", "gpt-4o", GPT, Tokens(100, 1_000_000, 100_000))
    text = _tell(Item("summaries", "no-such-model", DEFAULT, Tokens()), asked)
    assert "summaries" not in text
    assert "answers, by gpt-4o: 100 calls, 1,000,000 prompt tokens, 100,000 completion tokens" in text
    one = Item("answers", "gpt-4o", GPT, Tokens(1, 10_000, 1_000)).weigh(in_dollars=True)
    assert asked.weigh(in_dollars=True) == pytest.approx(100 * one)
    assert f"about ${100 * one:.2f} at the catalogue's prices, or less" in text


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        (DEFAULT, "as much as 1,400 prompt tokens at the default prices (input 1, output 4)"),
        (LOCAL, "prompt tokens at the prices of a local server (input 1, output"),
    ],
)
def test_prices_without_dollars_are_ratios(prices: PriceList, words: str) -> None:
    """It says whose they are."""
    text = _tell(Item("answers", "x", prices, Tokens(4, 1000, 100)), prices=prices)
    assert words in text
    assert "$" not in text


@pytest.mark.parametrize(
    ("model", "base_url"),
    [("no-such-model", OPENAI), ("gpt-4o", "http://127.0.0.1:8000/v1"), ("gpt-4o", "https://gateway.example.com/v1")],
)
def test_money_is_not_guessed(model: str, base_url: str) -> None:
    """There is no price for an unknown model, or for a model at a server with unknown prices."""
    unknown = Item("b", model, find_listed(base_url, model), Tokens(1, 10, 1))
    assert "$" not in _tell(Item("a", "gpt-4o", GPT, Tokens(1, 10, 1)), unknown)
