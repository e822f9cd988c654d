"""Fuzzes a chat completion's body, from the received bytes through the whole compaction to the bytes sent.

Laws: only UndecodableError and LimitExceededError are raised. Everything that no rule edited keeps its bytes. A body
that was JSON remains JSON. Every call sent has one result, and every result has its call. The same body has the same
outcome, with cold and with warm caches.
"""

import json  # noqa: TID251 - the oracle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fuzzing.chat_bodies import choose_policy, write_body
from fuzzing.choices import Choices
from support.checker import check_pairing, check_request

from proxy.compaction.compactor import Compacted, Compactor, Planned
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.chat.codec import CHAT
from proxy.wire.codec import Question, Request, UndecodableError
from proxy.wire.json.surrogates import replace_lone_surrogates
from rules.pipeline.exceeded import LimitExceededError
from rules.policy import OnExceeded, Policy, SummaryRole
from rules.summary.asking.prompts import write_prompt
from rules.summary.request import Summary

Outcome = Compacted | LimitExceededError | UndecodableError
SUMMARY = Summary("The build was mended in part; the tests are still to be run.", by_model=True)
LEADERS = ("system", "developer")


def fuzz_chat(data: bytes) -> None:
    """Compact one body under one policy."""
    choices = Choices(data)
    body, is_plain = write_body(choices)
    policy = choose_policy(choices)
    summary = choices.pick((SUMMARY, None))
    request = _read(body)
    if request is None:
        assert not is_plain, "a plain session was not read"
        return
    compactor = Compactor(count_by_heuristic)
    outcome = _compact(compactor, request, policy, summary)
    # Always with warm caches. With cold ones only each fourth time: it takes as long as everything else together.
    for other in (compactor, *((Compactor(count_by_heuristic),) if choices.happens(64) else ())):
        assert _describe(_compact(other, request, policy, summary)) == _describe(outcome), "two outcomes of one body"
    assert not isinstance(outcome, UndecodableError) or not is_plain, "a plain session was not decoded"
    if isinstance(outcome, Compacted):
        _check(request, outcome, policy, is_plain=is_plain)
        _ask_for_summaries(compactor, request, policy, outcome)


def _read(body: bytes) -> Request | None:
    """The request as the proxy reads it; None if it cannot be decoded."""
    with suppress(UndecodableError):
        return CHAT.read(body)
    return None


def _compact(compactor: Compactor, request: Request, policy: Policy, summary: Summary | None) -> Outcome:
    try:
        return compactor.apply(compactor.plan(request, policy), summary)
    except (LimitExceededError, UndecodableError) as error:
        return error


def _describe(outcome: Outcome) -> Any:
    return outcome if isinstance(outcome, Compacted) else (type(outcome), str(outcome))


def _ask_for_summaries(compactor: Compactor, request: Request, policy: Policy, sent: Compacted) -> None:
    """The other uses of a plan: questions for a summary, counts of sections, a postponed cut."""
    planned = compactor.plan(request, policy)
    assert compactor.uncounted_bytes(request) == 0, "decoded, but still not counted"
    compactor.count_sections(request)
    for wanted in filter(None, (planned.plan.request, planned.plan.prefetch)):
        inline = compactor.ask_behind(request, sent.forwarded, wanted, Question(request.model, 400))
        if inline is not None and _load(request.body) is not None:
            assert _load(inline) is not None, "the question for a summary is not JSON"
        assert write_prompt(wanted, base_text=None, max_tokens=400, count=count_by_heuristic)
    earlier = planned.plan.put_off()
    if earlier is not None:
        forward = replace(policy, on_exceeded=OnExceeded.FORWARD)
        put_off = Planned(request, planned.original, forward, earlier)
        _check(request, compactor.apply(put_off, SUMMARY), forward, is_plain=False)


def _check(request: Request, sent: Compacted, policy: Policy, *, is_plain: bool) -> None:
    """Check everything that must be true of the body sent."""
    if not sent.decisions:
        assert sent.body is request.body, "no decision was made, but the body changed"
        return
    if policy.on_exceeded is not OnExceeded.FORWARD:
        assert sent.forwarded.tokens <= policy.hard_limit_tokens(request.max_tokens), "over the limit, but not refused"
    arrived = _read(sent.body)
    assert arrived is not None, "the body sent cannot be read"
    _check_raws(arrived, sent)
    before, after = _load(request.body), _load(sent.body)
    if before is None:
        return
    assert after is not None, "the body sent is not JSON"
    _check_members(before, after)
    if _defies_pairing([_outline(raw) for raw in request.raws]):
        return
    problems = check_pairing([_outline(raw) for raw in arrived.raws])
    if policy.summary_role is not SummaryRole.SYSTEM:
        problems += _check_leaders(request, arrived)
    if policy.summary_role is SummaryRole.AUTO and is_plain:
        problems += check_request(request.body, sent.body, last_may_shrink=policy.on_exceeded is OnExceeded.TRUNCATE)
    assert not problems, "; ".join(problems)


def _check_raws(arrived: Request, sent: Compacted) -> None:
    """The body sent is the transcript that was decided on. Messages that no rule edited keep the client's bytes."""
    assert len(arrived.raws) == len(sent.forwarded.messages), "the messages sent are not those decided on"
    for raw, message in zip(arrived.raws, sent.forwarded.messages, strict=True):
        assert message.edited or message.raw == raw, "an untouched message has other bytes"


def _check_members(before: Sequence[Any], after: Sequence[Any]) -> None:
    """At most one `messages` differs. Order, duplicates and numbers of the other members are unchanged."""
    assert len(before) == len(after), "members were added or lost"
    changed = [left for left, right in zip(before, after, strict=True) if left != right]
    assert [name for name, _ in changed] == ["messages"] * len(changed), "members other than messages were changed"
    assert len(changed) <= 1, "more than one array of messages was changed"


def _check_leaders(request: Request, arrived: Request) -> Sequence[str]:
    before, after = ([raw for raw in part.raws if _outline(raw)["role"] in LEADERS] for part in (request, arrived))
    return [] if before == after else ["system or developer messages are not the client's bytes"]


def _defies_pairing(outlines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether pairing leaves it to the upstream: nothing would remain, or a role that no rule may edit makes calls."""
    calls_of_others = any(item["tool_calls"] and item["role"] in {*LEADERS, "user"} for item in outlines)
    return calls_of_others or all(item["role"] == "tool" for item in outlines)


def _outline(raw: bytes) -> Mapping[str, Any]:
    """Role, calls and call id of a message, as pairing reads them."""
    message = json.loads(replace_lone_surrogates(raw), parse_int=str, parse_float=str)
    calls, answers = message.get("tool_calls"), message.get("tool_call_id")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return {
        "role": message["role"],
        "tool_calls": [{"id": str(call.get("id") or "")} for call in listed],
        "tool_call_id": answers if isinstance(answers, str) else "",
    }


def _load(body: bytes) -> Any:
    """Members in order, with duplicates, and numbers as written. None if the body is not a JSON object."""
    try:
        loaded = json.loads(body.decode(), object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return None
    return loaded if isinstance(loaded, _Pairs) else None


class _Pairs(list[tuple[str, Any]]):
    """The members of an object. The class distinguishes them from an array."""


class _Number(str):
    """A number as written."""

    __slots__ = ()
