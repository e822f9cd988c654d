"""Planning a request again, as the proxy plans it."""

from dataclasses import replace

import orjson
import pytest
from support.sessions import make_session

from proxy.cli.records.replaying.carry_out import Carried, Text, Way, carry_out, read, remember
from proxy.compaction.pool import Compactors
from proxy.config.policies.policy import PolicyConfig
from proxy.wire.codec import UndecodableError, Unsent
from proxy.wire.content.cache_help import CacheHelp
from rules.policy import OnExceeded, Policy
from rules.summary.request import Summary

POLICY = Policy(context_window=8000, completion_reserve=1000, high_water=0.8, low_water=0.4)


def _body(steps: int = 40, **more: object) -> bytes:
    session = make_session(steps)
    return orjson.dumps({"model": "m", "messages": session["messages"][:-1], "tools": session["tools"], **more})


def _way(compactors: Compactors, **more: object) -> Way:
    return replace(Way(compactors.choose(PolicyConfig(), "m"), POLICY), **more)  # type: ignore[arg-type]


def _carry(compactors: Compactors, body: bytes, way: Way, **more: object) -> Carried:
    return carry_out(compactors, read(compactors, body), way, **more)  # type: ignore[arg-type]


def test_a_request_that_fits_passes_byte_for_byte(compactors: Compactors) -> None:
    body = _body(2)
    carried = _carry(compactors, body, _way(compactors))
    assert (carried.outcome, carried.body) == ("unchanged", body)


def test_a_cut_gets_the_text_that_is_chosen_for_it(compactors: Compactors) -> None:
    """Without one, a digest stands in."""
    summary = Summary("## 1. Progress\nThe harbour was mended.", by_model=True)
    told = _carry(compactors, _body(), _way(compactors), choose=lambda plan: Text(plan, summary))
    digest = _carry(compactors, _body(), _way(compactors))

    assert b"The harbour was mended." in (told.body or b"")
    assert "summarise" in {one.rule for one in told.compacted.decisions}
    assert "digest" in {one.rule for one in digest.compacted.decisions}
    assert told.outcome == digest.outcome == "compacted"


def test_what_is_only_observed_keeps_the_clients_body(compactors: Compactors) -> None:
    carried = _carry(compactors, _body(), _way(compactors, mode="observe"))
    assert (carried.outcome, carried.body) == ("observe", None)
    assert carried.compacted.decisions


def test_a_request_that_cannot_fit_is_refused(compactors: Compactors) -> None:
    """In mode observe it is not."""
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 9000}]})
    policy = replace(POLICY, on_exceeded=OnExceeded.ERROR)
    assert _carry(compactors, body, _way(compactors, policy=policy)).outcome == "refused"
    assert _carry(compactors, body, _way(compactors, policy=policy, mode="observe")).outcome == "observe"


def test_tools_are_taken_out_before_the_plan(compactors: Compactors) -> None:
    """Unless the transcript calls them. The original still counts them."""
    tool = {"type": "function", "function": {"name": "fly", "description": "Fly to the harbour.", "parameters": {}}}
    body = _body(1, tools=[tool, *make_session(1)["tools"]])
    carried = _carry(compactors, body, _way(compactors, unsent=Unsent(tools=("*",))))
    assert b"Fly to" not in (carried.body or b"")
    assert [one.rule for one in carried.compacted.decisions] == ["drop_tools"]
    assert carried.compacted.original_tokens == _carry(compactors, body, _way(compactors)).compacted.original_tokens


def test_what_is_added_for_the_providers_cache_is_added_again(compactors: Compactors) -> None:
    carried = _carry(compactors, _body(2), _way(compactors, cache=CacheHelp(frozenset({"cache_key"}), "k1")))
    assert orjson.loads(carried.body or b"")["prompt_cache_key"] == "k1"
    assert [(one.rule, one.saved_tokens) for one in carried.compacted.decisions] == [("cache_key", 0)]


def test_unpaired_calls_are_refused_if_the_policy_says_so(compactors: Compactors) -> None:
    body = orjson.dumps({"model": "m", "messages": [{"role": "tool", "tool_call_id": "x", "content": "lost"}]})
    carried = _carry(compactors, body, _way(compactors, refuses_unpaired=True))
    assert (carried.outcome, carried.compacted.sent_tokens) == ("refused", 0)
    assert not _carry(compactors, body, _way(compactors)).is_refused


def test_a_body_that_goes_on_is_read_from_where_the_last_one_ended(compactors: Compactors) -> None:
    """What was remembered never changes a result."""
    fresh = Compactors(None)
    for steps in (18, 19, 20):
        again = _carry(compactors, _body(steps), _way(compactors))
        remember(compactors, read(compactors, _body(steps)))
    once = carry_out(fresh, read(fresh, _body(20)), _way(fresh))
    assert again.body == once.body
    assert again.compacted.decisions == once.compacted.decisions


def test_what_is_no_request_is_not_read(compactors: Compactors) -> None:
    with pytest.raises(UndecodableError):
        read(compactors, b"[]")
