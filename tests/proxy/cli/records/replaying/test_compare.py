"""Whether a request was planned again as it was recorded."""

from dataclasses import replace

import orjson
from support.client import CHAT
from support.recordings import make_recording

from proxy.cli.records.replaying.carry_out import Carried, Way, carry_out, read
from proxy.cli.records.replaying.compare import find_difference
from proxy.compaction.pool import Compactors
from proxy.config.policies.policy import PolicyConfig
from proxy.state.recordings.format import Counted, RecordedSending, Recording
from rules.conversation import Decision
from rules.policy import Policy

BODY = orjson.dumps(CHAT).decode()


def _carry(compactors: Compactors) -> Carried:
    way = Way(compactors.choose(PolicyConfig(), "m"), Policy())
    return carry_out(compactors, read(compactors, BODY.encode()), way)


def _record(carried: Carried, *, original: int = 0, sent: int = 0) -> Recording:
    made, tokens = make_recording(body=BODY), carried.compacted.sent_tokens
    event = replace(made.event, original_tokens=tokens + original, sent_tokens=tokens + sent)
    return replace(made, event=event, counted=Counted(original=True, sent=True))


def test_the_same_plan_differs_in_nothing(compactors: Compactors) -> None:
    carried = _carry(compactors)
    assert find_difference(_record(carried), carried) == ""


def test_each_difference_is_named(compactors: Compactors) -> None:
    """Tokens of both prompts, decisions, and bytes."""
    carried = _carry(compactors)
    same = _record(carried)
    decided = replace(same, counted=replace(same.counted, decisions=(Decision("tidy", "", 9, 5, 1, 0),)))
    assert "client's prompt" in find_difference(_record(carried, original=1), carried)
    assert "prompt that is sent" in find_difference(_record(carried, sent=1), carried)
    assert "none now, and were tidy (4)" in find_difference(decided, carried)
    assert find_difference(replace(same, sent=RecordedSending("{}")), carried) == "the body differs"


def test_a_replaced_credential_is_named_as_the_reason(compactors: Compactors) -> None:
    carried = _carry(compactors)
    same = _record(carried)
    assert same.request is not None
    redacted = replace(same, request=replace(same.request, is_redacted=True), sent=RecordedSending("{}"))
    assert "credential" in find_difference(redacted, carried)


def test_a_body_that_was_not_sent_is_not_compared(compactors: Compactors) -> None:
    carried = _carry(compactors)
    unsent = replace(_record(carried), sent=None, counted=Counted(original=True))
    assert find_difference(unsent, carried) == ""
