"""A request is compacted at once, as the proxy compacts it."""

from dataclasses import replace

import orjson
from msgspec import structs
from support.sessions import make_session

from trimtab.proxy.compaction.engine import Compaction, Text, Variant, compact
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.wire.cache_help import CacheHelp
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.transcript.body import Unsent
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.summary.request import Summary

POLICY = Policy(context_window=8000, completion_reserve=1000, high_water=0.8, low_water=0.4)


def _body(steps: int = 40, **more: object) -> bytes:
    session = make_session(steps)
    return orjson.dumps({"model": "m", "messages": session["messages"][:-1], "tools": session["tools"], **more})


def _variant(compactors: Compactors, **more: object) -> Variant:
    return structs.replace(Variant(compactors.choose(PolicyConfig(), "m"), POLICY), **more)  # type: ignore[arg-type]


def _compact(body: bytes, variant: Variant, **more: object) -> Compaction:
    return compact(CHAT.read(body), variant, **more)  # type: ignore[arg-type]


def test_a_cut_gets_the_text_that_is_chosen_for_it(compactors: Compactors) -> None:
    summary = Summary("## 1. Progress\nThe harbour was mended.", by_model=True)
    told = _compact(_body(), _variant(compactors), choose=lambda plan: Text(plan, summary))
    digest = _compact(_body(), _variant(compactors))

    assert b"The harbour was mended." in (told.body or b"")
    assert "summarise" in {one.rule for one in told.compacted.decisions}
    assert "digest" in {one.rule for one in digest.compacted.decisions}
    assert told.outcome == digest.outcome == "compacted"


def test_a_request_that_cannot_fit_is_refused_unless_it_is_only_observed(compactors: Compactors) -> None:
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 9000}]})
    policy = replace(POLICY, on_exceeded=OnExceeded.ERROR)
    assert _compact(body, _variant(compactors, policy=policy)).outcome == "refused"
    observed = _compact(body, _variant(compactors, policy=policy, mode="observe"))
    assert (observed.outcome, observed.body) == ("observe", None)


def test_tools_are_taken_out_before_the_plan(compactors: Compactors) -> None:
    """Unless the transcript calls them. The original still counts them."""
    tool = {"type": "function", "function": {"name": "fly", "description": "Fly to the harbour.", "parameters": {}}}
    body = _body(1, tools=[tool, *make_session(1)["tools"]])
    compaction = _compact(body, _variant(compactors, unsent=Unsent(tools=("*",))))
    assert b"Fly to" not in (compaction.body or b"")
    assert [one.rule for one in compaction.compacted.decisions] == ["drop_tools"]
    assert compaction.compacted.original_tokens == _compact(body, _variant(compactors)).compacted.original_tokens


def test_what_is_added_for_the_providers_cache_is_added_again(compactors: Compactors) -> None:
    compaction = _compact(_body(2), _variant(compactors, cache=CacheHelp(frozenset({"cache_key"}), "k1")))
    assert orjson.loads(compaction.body or b"")["prompt_cache_key"] == "k1"
    (decision,) = compaction.compacted.decisions
    assert (decision.rule, decision.saved_tokens, decision.messages) == ("cache_key", 0, 0)
