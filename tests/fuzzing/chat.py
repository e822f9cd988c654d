"""Fuzzes a chat completion's body; see fuzzing/bodies.py.

Laws: also, every call sent has one result, and every result has its call.
"""

import json  # noqa: TID251 - the oracle
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from fuzzing.bodies import Sent, Speech, load
from fuzzing.chat_bodies import write_body
from support.checker import RESULTS, are_of_client, check_pairing, check_request
from support.dialects.spoken.chat import CHAT

from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.json import read_id, replace_lone_surrogates
from trimtab.rules.policy import OnExceeded, SummaryRole

LEADERS = ("system", "developer")


def find_problems(sent: Sent) -> Sequence[str]:
    """What is wrong with a changed body, as a strict upstream would see it."""
    request, arrived, policy = sent.request, sent.arrived, sent.policy
    _check_raws(sent)
    if load(request.body) is None or _defies_pairing([_outline(raw) for raw in request.raws]):
        return []
    problems = list(check_pairing([_outline(raw) for raw in arrived.raws]))
    if policy.summary_role is not SummaryRole.SYSTEM:
        problems += _check_leaders(request, arrived)
    if policy.summary_role is SummaryRole.AUTO and sent.is_plain:
        may_shrink = policy.on_exceeded is OnExceeded.TRUNCATE
        problems += check_request(request.body, sent.compacted.body, last_may_shrink=may_shrink)
    return problems


def _check_raws(sent: Sent) -> None:
    """The body sent is the transcript that was decided on. Messages that no rule edited keep the client's bytes."""
    raws, messages = sent.arrived.raws, sent.compacted.forwarded.messages
    assert len(raws) == len(messages), "the messages sent are not those decided on"
    for raw, message in zip(raws, messages, strict=True):
        assert message.edited or message.raw == raw, "an untouched message has other bytes"


def _check_leaders(request: Request, arrived: Request) -> Sequence[str]:
    before, after = ([raw for raw in part.raws if _outline(raw)["role"] in LEADERS] for part in (request, arrived))
    leading = len(list(takewhile(lambda raw: _outline(raw)["role"] in LEADERS, request.raws)))
    are_known = are_of_client(before, after, leading=leading)
    return [] if are_known else ["system or developer messages are not the client's bytes"]


def _defies_pairing(outlines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether pairing leaves it to the upstream: nothing would remain, or a role that has no calls makes some."""
    calls_of_others = any(item["tool_calls"] and item["role"] in {*LEADERS, "user", *RESULTS} for item in outlines)
    return calls_of_others or all(item["role"] == "tool" for item in outlines)


def _outline(raw: bytes) -> Mapping[str, Any]:
    """Role, calls and call id of a message, as pairing reads them."""
    message = json.loads(replace_lone_surrogates(raw))
    calls, answers = message.get("tool_calls"), message.get("tool_call_id")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return {
        "role": message["role"],
        "tool_calls": [{"id": read_id(call.get("id"))} for call in listed],
        "tool_call_id": read_id(answers),
    }


fuzz_chat = Speech(CHAT, write_body, find_problems).fuzz
