"""No tenant can learn from response times what another tenant sent, because no cached result is shared.

The tests check caches, not clocks: content of another tenant must be decoded, counted and planned again.
"""

from collections.abc import Callable

import orjson
import pytest
from support.client import post

from trimtab.proxy.compaction.compactor import Compactor
from trimtab.proxy.compaction.pool import MAX_TENANTS, Compactors
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.rules.policy import Budget, Policy

SECRET = "the salary of person 7 is 5000, and here is why: " * 40
AUTO, POLICY = PolicyConfig(), Policy(result_budget=Budget(300))
CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "read", "arguments": orjson.dumps({"path": SECRET}).decode()},
}
TOOL = {"type": "function", "function": {"name": "pay", "description": SECRET, "parameters": {"type": "object"}}}
RESULT = "\n".join(f"{number}: {SECRET}" for number in range(40))

BODIES = {
    "a message": {"messages": [{"role": "user", "content": SECRET}]},
    "a system prompt": {"messages": [{"role": "system", "content": SECRET}, {"role": "user", "content": "hi"}]},
    "a tool": {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]},
    "a format": {
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"description": SECRET}}},
    },
    "a tool's result, twice": {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "d"}]},
            {"role": "tool", "tool_call_id": "c", "content": RESULT},
            {"role": "tool", "tool_call_id": "d", "content": RESULT + "."},
        ]
    },
}


def _body(kind: str) -> bytes:
    return orjson.dumps({"model": "gpt-4o", **BODIES[kind]})


def _know_nothing(body: bytes, compactor: Compactor) -> bool:
    """Whether a compactor knows no part of a request and would count all of it."""
    request = CHAT.read(body)
    return compactor.uncounted_bytes(request) >= sum(map(len, request.raws)) + sum(map(len, request.fixed))


SHOWN = {
    "bearers": ({"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}),
    "one of them none": ({"Authorization": "Bearer one"}, {}),
    "keys of Azure's": (
        {"Authorization": "Bearer x", "api-key": "one"},
        {"Authorization": "Bearer x", "api-key": "two"},
    ),
    "the same key for us": (
        {"x-trimtab-key": "key", "Authorization": "Bearer one"},
        {"x-trimtab-key": "key", "Authorization": "Bearer two"},
    ),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("shown", SHOWN)
async def test_what_one_has_sent_is_new_from_another(client, start_proxy, kind: str, shown: str) -> None:
    """For the sender itself, nothing is new."""
    proxy = await start_proxy(*(["client_keys=[key]"] if "for us" in shown else []))
    sender, other = SHOWN[shown]
    answer, _ = await post(client, proxy.url + "/v1/chat/completions", _body(kind), **sender)
    assert answer.status == 200
    tenancy, choose = proxy.services.tenancy, proxy.services.compactors.choose
    of_sender, of_other = (choose(AUTO, "gpt-4o", tenancy.identify(list(one.items())).id) for one in (sender, other))
    assert of_sender.uncounted_bytes(CHAT.read(_body(kind))) == 0
    assert _know_nothing(_body(kind), of_other)


@pytest.mark.parametrize("kind", BODIES)
def test_nothing_that_was_worked_out_is_found_by_another(compactors: Compactors, kind: str) -> None:
    """Messages, results, comparisons, states and counts are all made again, with the same calls of the counter."""
    body, counted = _body(kind), []

    def compact(tenant_id: str) -> list[int]:
        compactor = Compactor(_note(counted), caches=shared.share())
        compactor.apply(compactor.plan(CHAT.read(body), POLICY), None)
        made, counted[:] = list(counted), []
        return made

    shared = compactors._caches.share()
    first = compact("one")
    assert first
    assert compact("two") == first


def _note(counted: list[int]) -> Callable[[str], int]:
    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4

    return count


def test_counts_are_remembered_for_one_tenant(compactors: Compactors) -> None:
    """Texts of responses use the same counter, so its memo must belong to the tenant too."""
    counts = [compactors.choose(AUTO, "gpt-4o", tenant).count for tenant in ("one", "two")]
    text = SECRET * 3
    assert counts[0](text) == counts[1](text)
    holders = [compactors._holders[tenant] for tenant in ("one", "two")]
    assert holders[0].memos["o200k_base"].usual is not holders[1].memos["o200k_base"].usual
    counts[0](text + "only one")
    assert text + "only one" in holders[0].memos["o200k_base"].usual
    assert text + "only one" not in holders[1].memos["o200k_base"].usual


def test_invented_credentials_do_not_fill_the_memory(compactors: Compactors) -> None:
    """The number of remembered tenants is bounded. A forgotten tenant is served like a new one."""
    request = CHAT.read(_body("a message"))
    forgotten = compactors.choose(AUTO, "gpt-4o", "honest")
    forgotten.plan(request, POLICY)
    for number in range(MAX_TENANTS):
        compactors.choose(AUTO, "gpt-4o", f"invented {number}")
    assert len(compactors._holders) == MAX_TENANTS
    forgotten.plan(request, POLICY)  # a request in progress
    assert _know_nothing(_body("a message"), forgotten)  # it is planned, but nothing is kept for a forgotten tenant
    again = compactors.choose(AUTO, "gpt-4o", "honest")
    assert again is not forgotten
    assert again.plan(request, POLICY).plan.decisions == forgotten.plan(request, POLICY).plan.decisions
