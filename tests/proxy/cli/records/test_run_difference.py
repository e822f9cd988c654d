"""Whether a request was planned again as it was recorded: the same decisions, tokens and bytes."""

from collections import Counter
from dataclasses import replace

import orjson
import pytest
from msgspec import structs
from support.client import CHAT as BODY_OF_CHAT
from support.client import post, settle
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.messages import MESSAGES
from support.dialects.spoken.responses import RESPONSES
from support.recordings import make_recording, plan_again
from support.sessions import make_session
from upstreams.recording import hold_summaries

from trimtab.proxy.account.recordings.format import Counted, RecordedSending, Recording
from trimtab.proxy.cli.records.run import find_difference
from trimtab.proxy.cli.records.variants import compact_again, read
from trimtab.proxy.compaction.engine import Compaction, Variant
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.telemetry.ledger import REFUSED
from trimtab.rules.conversation import Decision
from trimtab.rules.policy import Policy

BODY = orjson.dumps(BODY_OF_CHAT).decode()
TOOL = {"type": "function", "function": {"name": "mcp__map", "description": "Draws a map. " * 40, "parameters": {}}}
CHEAP = ("prices.cached_input=0", "prices.cache_write=0", "prices.output=0")
"""Prices at which every cut pays."""
NEVER_WAIT = "defaults.summary.wait_seconds=0"


def _carry(compactors: Compactors) -> Compaction:
    way = Variant(compactors.choose(PolicyConfig(), "m"), Policy())
    return compact_again(compactors, read(compactors, BODY.encode()), way)


def _record(carried: Compaction, *, original: int = 0, sent: int = 0) -> Recording:
    made, tokens = make_recording(body=BODY), carried.compacted.sent_tokens
    event = structs.replace(made.event, original_tokens=tokens + original, sent_tokens=tokens + sent)
    return structs.replace(made, event=event, counted=Counted(original=True, sent=True))


def test_each_difference_is_named(compactors: Compactors) -> None:
    """Tokens of both prompts, decisions, and bytes, if any were sent; and a replaced credential as the reason."""
    carried = _carry(compactors)
    same = _record(carried)
    decided = structs.replace(same.counted, decisions=(Decision("tidy", "", 9, 5, 1, 0),))
    unsent = structs.replace(same, sent=None, counted=Counted(original=True))
    other = structs.replace(same, sent=RecordedSending("{}"))
    assert same.request is not None
    redacted = structs.replace(other, request=replace(same.request, is_redacted=True))
    assert find_difference(same, carried) == find_difference(unsent, carried) == ""
    assert "client's prompt" in find_difference(_record(carried, original=1), carried)
    assert "prompt that is sent" in find_difference(_record(carried, sent=1), carried)
    assert "none now, and were tidy (4)" in find_difference(structs.replace(same, counted=decided), carried)
    assert find_difference(other, carried) == "the body differs"
    assert "credential" in find_difference(redacted, carried)


def check_again(compactors: Compactors, recording: Recording) -> Counter[str]:
    """Plan a recording again, and compare. Returns the rules of its decisions."""
    again, event = plan_again(compactors, recording), recording.event
    assert find_difference(recording, again) == ""
    compacted = again.compacted
    assert (compacted.original_tokens, compacted.limit_tokens) == (event.original_tokens, event.limit_tokens)
    assert compacted.original_sections == event.original_sections
    if event.mode == "enforce" and recording.sent is not None:
        assert again.body == recording.sent_body
        assert compacted.sent_sections == event.sent_sections
        assert compacted.decisions == recording.counted.decisions
    attempt = recording.circumstances.attempt
    told = [(one.rule, one.reason, one.tokens_before, one.tokens_after) for one in compacted.decisions]
    rules = [(one.rule, one.reason, one.tokens_before, one.tokens_after) for one in event.decisions
             if one.attempt == attempt and one.rule not in {REFUSED, "cold_cache", "lesson_test"}]  # fmt: skip
    assert told == rules
    return Counter(rule for rule, *_ in told)


@pytest.mark.parametrize(
    ("dialect", "settings", "rules"),
    [
        (CHAT, ("mode=observe", 'defaults.drop_tools=["mcp__*"]'), {"drop_tools", "digest"}),
        (MESSAGES, ('defaults.drop_tools=["mcp__*"]', "defaults.context_window=128000"), {"drop_tools"}),
    ],
    ids=["observed", "enforced"],
)
async def test_what_was_taken_out_before_planning_is_taken_out_again(
    dialect, settings, rules, recorder, compactors
) -> None:
    await recorder.start(*settings)
    session = make_session(40)
    session["tools"].append(TOOL)
    await recorder.play(dialect, session=session)
    recordings = await recorder.read()
    assert len(recordings) == 5
    assert rules <= set(sum((check_again(compactors, one) for one in recordings), Counter()))


async def test_a_cut_that_was_put_off(recorder, compactors, upstream) -> None:
    """The summary is under way, and the request still fits: the recorded plan has no cut, and neither has the new."""
    release = hold_summaries(upstream)
    await recorder.start(*CHEAP, NEVER_WAIT, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
    session, url = make_session(70, result_words=120)["messages"], recorder.proxy.url + CHAT.path
    for stop in range(60, 130, 2):
        await post(recorder.client, url, CHAT.write(session[:stop], max_tokens=16))
    recordings = await recorder.read()
    release.set()
    await settle(recorder.proxy)
    assert any(one.circumstances.put_off for one in recordings)
    for one in recordings:
        check_again(compactors, one)


async def test_a_cut_at_a_cold_cache(recorder, compactors) -> None:
    """The clock has decided it. The recording says where, so it is planned again without a clock."""
    await recorder.start("upstream.cache_seconds=300", "defaults.summary.max_tokens=300", "store=sqlite")
    now = [1_800_000_000.0]
    recorder.proxy.services.cold_cuts.clock = lambda: now[0]
    session = make_session(40, result_words=200)
    for stop in range(4, 60, 2):
        now[0] += 412 if stop == 44 else 10
        await recorder.play(RESPONSES, stops=(stop,), session=session)
    recordings = await recorder.read()
    cold = [one for one in recordings if one.circumstances.cold]
    assert cold
    for one in recordings:
        check_again(compactors, one)
    unlike = structs.replace(cold[0], circumstances=structs.replace(cold[0].circumstances, cold={}))
    with pytest.raises(AssertionError):
        check_again(compactors, unlike)
