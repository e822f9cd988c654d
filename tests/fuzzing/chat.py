"""A chat completion's body, from its bytes through the whole compaction to the bytes that go out.

Laws: only UndecodableError and LimitExceededError come out. What no rule touched is there byte for byte; what was JSON
is JSON; every call that goes out has one result and the reverse; the same body has the same outcome, however warm the
caches are.
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
    """One body under one policy."""
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
    # A warm one each time; one that knows nothing, which takes as long as all the rest, each fourth time.
    for other in (compactor, *((Compactor(count_by_heuristic),) if choices.happens(64) else ())):
        assert _describe(_compact(other, request, policy, summary)) == _describe(outcome), "two outcomes of one body"
    assert not isinstance(outcome, UndecodableError) or not is_plain, "a plain session was not decoded"
    if isinstance(outcome, Compacted):
        _check(request, outcome, policy, is_plain=is_plain)
        _ask_for_summaries(compactor, request, policy, outcome)


def _read(body: bytes) -> Request | None:
    """The request, as the proxy reads it."""
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
    """What else the proxy does with a plan: questions to the summariser, sections, the cut put off."""
    planned = compactor.plan(request, policy)
    assert compactor.uncounted_bytes(request) == 0, "read, and still not known"
    compactor.count_sections(request)
    for wanted in filter(None, (planned.plan.request, planned.plan.prefetch)):
        inline = compactor.ask_behind(request, sent.forwarded, wanted, Question(request.model, 400))
        if inline is not None and _load(request.body) is not None:
            assert _load(inline) is not None, "the question for a summary is no JSON"
        assert write_prompt(wanted, base_text=None, max_tokens=400, count=count_by_heuristic)
    earlier = planned.plan.put_off()
    if earlier is not None:
        forward = replace(policy, on_exceeded=OnExceeded.FORWARD)
        put_off = Planned(request, planned.original, forward, earlier)
        _check(request, compactor.apply(put_off, SUMMARY), forward, is_plain=False)


def _check(request: Request, sent: Compacted, policy: Policy, *, is_plain: bool) -> None:
    """All that must be true of what goes out."""
    if not sent.decisions:
        assert sent.body is request.body, "nothing was decided, and the body is another"
        return
    if policy.on_exceeded is not OnExceeded.FORWARD:
        assert sent.forwarded.tokens <= policy.hard_limit_tokens(request.max_tokens), "over the window, and not refused"
    arrived = _read(sent.body)
    assert arrived is not None, "what goes out cannot be read"
    _check_raws(arrived, sent)
    before, after = _load(request.body), _load(sent.body)
    if before is None:
        return
    assert after is not None, "what goes out is no JSON"
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
    """What goes out is the transcript that was decided on; untouched messages are the client's bytes."""
    assert len(arrived.raws) == len(sent.forwarded.messages), "other messages than were decided on"
    for raw, message in zip(arrived.raws, sent.forwarded.messages, strict=True):
        assert message.edited or message.raw == raw, "an untouched message has other bytes"


def _check_members(before: Sequence[Any], after: Sequence[Any]) -> None:
    """One `messages` is another, and nothing else: order, duplicates and numbers are as they were."""
    assert len(before) == len(after), "members were added or lost"
    changed = [left for left, right in zip(before, after, strict=True) if left != right]
    assert [name for name, _ in changed] == ["messages"] * len(changed), "members other than messages were changed"
    assert len(changed) <= 1, "more than one array of messages was changed"


def _check_leaders(request: Request, arrived: Request) -> Sequence[str]:
    before, after = ([raw for raw in part.raws if _outline(raw)["role"] in LEADERS] for part in (request, arrived))
    return [] if before == after else ["system or developer messages are not the client's bytes"]


def _defies_pairing(outlines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether nothing would be left of it, or calls are made by whom no rule may touch: the upstream judges."""
    calls_of_others = any(item["tool_calls"] and item["role"] in {*LEADERS, "user"} for item in outlines)
    return calls_of_others or all(item["role"] == "tool" for item in outlines)


def _outline(raw: bytes) -> Mapping[str, Any]:
    """Role, calls and answer of a message, as they count for pairing."""
    message = json.loads(replace_lone_surrogates(raw), parse_int=str, parse_float=str)
    calls, answers = message.get("tool_calls"), message.get("tool_call_id")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return {
        "role": message["role"],
        "tool_calls": [{"id": str(call.get("id") or "")} for call in listed],
        "tool_call_id": answers if isinstance(answers, str) else "",
    }


def _load(body: bytes) -> Any:
    """Members in their order, duplicates and all, numbers as they are written; None where it is no JSON object."""
    try:
        loaded = json.loads(body.decode(), object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return None
    return loaded if isinstance(loaded, _Pairs) else None


class _Pairs(list[tuple[str, Any]]):
    """An object, told from an array."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()
