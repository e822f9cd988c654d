"""What an evaluation prepares before a model is asked."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from upstreams.examinee import Examinee, make_session
from upstreams.recording import FakeUpstream

from trimtab.proxy.cli.evaluate.exam import ExamQuestion
from trimtab.proxy.cli.evaluate.rehearsal import NAMES, read_session
from trimtab.proxy.cli.evaluate.setup import (
    Options,
    Setup,
    add_up,
    find_view,
    keep_questions,
    name_set,
    prepare,
    show_key,
)
from trimtab.proxy.compaction import load_compactor
from trimtab.proxy.compaction.engine import Variant
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.schema import Config
from trimtab.rules.summary.request import Summary

OPTIONS = Options(None, NAMES, 10, None, 4, 20.0, "user-key")


def _config(upstream: FakeUpstream, *settings: str) -> Config:
    return load_config(settings=(f"upstream.base_url={upstream.url}", *settings), environment={})


async def _prepare(config: Config, options: Options = OPTIONS, window_tokens: int | None = 16_000) -> Setup:
    session = read_session(make_session(60))
    view = await find_view(config, session.request.model, window_tokens, options.key)
    return prepare(config, options, view, session, Variant(load_compactor("m", vocabulary="heuristic"), view.policy))


async def test_a_window_that_is_configured_is_asked_of_nobody(upstream: FakeUpstream) -> None:
    view = await find_view(_config(upstream, "models=[{match: m, context_window: 9000}]"), "m", None, None)
    assert (view.policy.context_window, view.window_from) == (9000, "configured")
    assert upstream.questions == upstream.requests == []


async def test_a_window_that_nobody_names_is_asked_of_the_upstream(upstream: FakeUpstream) -> None:
    """The request is like the proxy's own, with the user's key."""
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
    """A judge or a summariser with an upstream of its own is asked there."""
    other = "upstreams={other: {base_url: 'http://127.0.0.1:9/v2', api_key: own}}"
    models = "models=[{match: judge, upstream: other}]"
    setup = await _prepare(_config(upstream, other, models, "defaults.summary.upstream=other"))
    assert str(setup.find_server("exam-model").url) == f"{upstream.url}/chat/completions"
    assert str(setup.find_server("judge").url) == "http://127.0.0.1:9/v2/chat/completions"
    assert setup.find_server("judge").headers == []
    assert str(setup.find_summariser().url) == "http://127.0.0.1:9/v2/chat/completions"
    assert "user-key" not in repr(setup.find_server("exam-model")) + repr(setup.options)


async def test_the_estimate_is_what_is_asked_at_most(upstream: FakeUpstream, examinee: Examinee) -> None:
    """There is a call for each summary, part, answer and grade. An arm that does not fit costs nothing."""
    setup = await _prepare(_config(upstream))
    arms = setup.make_arms({})
    items = {item.what: item.tokens for item in setup.estimate(arms)}
    assert [arm.name for arm in arms if arm.problem] == ["none"]
    assert {what: tokens.calls for what, tokens in items.items()} == {
        "summaries": len(setup.summaries),
        "questions": len(setup.parts),
        "answers": 30,
        "grades": 30,
    }
    assert items["answers"].prompt > 10 * sum(arm.tokens for arm in arms if arm.problem is None)
    # Even with summaries of the maximum length, no arm is larger than estimated.
    texts = {one.request.key: Summary("long " * one.request.max_tokens, by_model=True) for one in setup.summaries}
    assert add_up(setup.estimate(setup.make_arms(texts))).prompt <= add_up(setup.estimate(arms)).prompt
    assert upstream.requests == examinee.kinds == []


async def test_arms_that_are_not_wanted_cost_nothing(upstream: FakeUpstream) -> None:
    setup = await _prepare(_config(upstream), replace(OPTIONS, arms=("digest",)))
    items = {item.what: item.tokens.calls for item in setup.estimate(setup.make_arms({}))}
    assert (items["summaries"], items["answers"]) == (0, 10)


async def test_a_model_may_hold_more_than_is_compacted_for(upstream: FakeUpstream) -> None:
    """The window of the option is used to compact; the whole session is asked in the model's real window."""
    upstream.models = orjson.dumps({"data": [{"id": "exam-model", "max_model_len": 200_000}]})
    setup = await _prepare(_config(upstream), window_tokens=16_000)
    arms = {arm.name: arm for arm in setup.make_arms({})}
    assert arms["trimtab"].tokens < 16_000 < arms["none"].tokens
    assert arms["none"].problem is None
    assert (await _prepare(_config(upstream), window_tokens=None)).parts == ()


async def test_questions_of_the_cache_need_not_be_made(upstream: FakeUpstream, tmp_path: Path) -> None:
    """They belong to the same session, model and number. Each arm is asked all of them."""
    path, session = tmp_path / "questions.json", read_session(make_session(60))
    kept = [ExamQuestion("What?", "that", "that one", 0.5)] * 3
    keep_questions(path, name_set(session.sha256, "exam-model", 10), kept)
    setup = await _prepare(_config(upstream), replace(OPTIONS, cache=path))
    items = {item.what: item.tokens.calls for item in setup.estimate(setup.make_arms({}))}
    assert setup.questions == tuple(kept)
    assert (items["questions"], items["answers"]) == (0, 9)
    setup = await _prepare(_config(upstream), replace(OPTIONS, cache=path, questions=11))
    assert setup.questions == ()


@pytest.mark.parametrize("window_tokens", [4000, 16_000])
async def test_parts_fit_the_models_window(upstream: FakeUpstream, window_tokens: int) -> None:
    setup = await _prepare(_config(upstream), window_tokens=window_tokens)
    assert setup.parts
    assert all(setup.rehearsal.variant.compactor.count(part.text) <= window_tokens * 0.6 for part in setup.parts)
