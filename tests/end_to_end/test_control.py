"""The mode of a model, a share of sessions, and unpaired calls, in each dialect through the running proxy."""

from typing import Any

import orjson
from support.client import SMALL, post
from support.dialects.spoken.all_dialects import each_dialect
from support.dialects.spoken.dialect import Dialect
from support.sessions import make_session
from upstreams.recording import FakeUpstream

Wire = dict[str, Any]
PRUNES = (*SMALL, "defaults.overflow_strategy=prune")
STEPS_BEFORE_CUT = 26
"""With PRUNES, in each dialect, the step after these reaches high water, and the one after that does not."""


def _write(dialect: Dialect, session: Wire, *, model: str = "m") -> Wire:
    return dialect.write(session["messages"], session["tools"], model=model)


def _make_session(task: str, steps: int = 40) -> Wire:
    session = make_session(steps)
    messages = [dict(message) for message in session["messages"]]
    first = next(message for message in messages if message["role"] == "user")
    first["content"] = f"{task} {first['content']}"
    return session | {"messages": messages}


@each_dialect
async def test_observing_one_glob_leaves_that_model_s_bytes_and_not_its_neighbour_s(
    dialect: Dialect, client, upstream: FakeUpstream, start_proxy, log
) -> None:
    """The answer, the log line and the metrics of each say so. All three tell of high water: the next step is cut."""
    proxy = await start_proxy(*PRUNES, 'models=[{match: "gpt-*", mode: observe}, {match: "gpt*"}]')
    seen, is_told = {}, {}
    for steps in (STEPS_BEFORE_CUT + 1, STEPS_BEFORE_CUT):
        for model in ("gpt-a", "gptb", "other"):
            body = orjson.dumps(_write(dialect, _make_session("Mend it.", steps), model=model))
            answer, _ = await post(client, proxy.url + dialect.path, body)
            assert answer.headers["x-trimtab-outcome"] == log.lines[-1]["outcome"]
            seen[model] = (answer.headers["x-trimtab-outcome"], upstream.requests[-1].body == body)
            is_told[model, steps] = "high_water=?1" in answer.headers["x-trimtab-tokens"].split(", ")
    assert is_told == {(model, steps): steps == STEPS_BEFORE_CUT for model, steps in is_told}

    assert seen == {"gpt-a": ("observe", True), "gptb": ("compacted", False), "other": ("compacted", False)}
    sample = proxy.services.recorder.metrics.registry.get_sample_value
    labels = {"endpoint": dialect.name, "status": "200"}
    for match, outcome in (("gpt-*", "observe"), ("gpt*", "compacted")):
        assert sample("trimtab_requests_total", labels | {"model": match, "outcome": outcome}) == 2


@each_dialect
async def test_an_unpaired_request_is_refused_in_the_dialect_s_own_form(
    dialect: Dialect, client, upstream: FakeUpstream, start_proxy, log
) -> None:
    """Nothing is sent upstream. By default it is repaired, which is counted; a paired one passes."""
    whole, member = _write(dialect, make_session(3)), dialect.transcript
    answered = [index for index, element in enumerate(whole[member]) if _is_result(element)]
    broken = whole | {member: [item for index, item in enumerate(whole[member]) if index != answered[1]]}
    refusing, repairing = await start_proxy(*SMALL, "defaults.pairing=refuse"), await start_proxy(*SMALL)

    sent = len(upstream.requests)
    answer, said = await post(client, refusing.url + dialect.path, broken)
    error = orjson.loads(said)["error"]
    assert (answer.status, len(upstream.requests)) == (400, sent)
    assert error["type"] == "invalid_request_error"
    assert f"1 call has no result ({member}[" in error["message"]
    if dialect.name != "messages":
        assert (error["code"], error["param"]) == ("unpaired_tool_calls", member)
    assert (log.lines[-1]["outcome"], log.lines[-1]["error"]) == ("refused", "unpaired_tool_calls")
    assert (await post(client, refusing.url + dialect.path, whole))[0].status == 200

    sample = repairing.services.recorder.metrics.registry.get_sample_value
    for expected in (1, 2):
        answer, _ = await post(client, repairing.url + dialect.path, broken)
        assert (answer.status, answer.headers["x-trimtab-decisions"].partition(";")[0]) == (200, "pairing")
        assert sum(sample("trimtab_repairs_total", {"model": name}) or 0 for name in ("m", "other")) == expected


async def test_a_refusal_counts_elements_as_the_client_sent_them(client, start_proxy) -> None:
    """Items of the client alone are taken out first. They keep their place in the message."""
    items = [
        {"type": "ghost_snapshot", "ghost_commit": {"id": "x"}},
        {"role": "user", "content": "Do it."},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"role": "user", "content": "And?"},
    ]
    proxy = await start_proxy("defaults.pairing=refuse")
    answer, said = await post(client, f"{proxy.url}/v1/responses", {"model": "m", "input": items})
    assert answer.status == 400
    assert "1 call has no result (input[2])" in orjson.loads(said)["error"]["message"]
    held = {"model": "m", "input": items, "previous_response_id": "resp_1"}
    assert (await post(client, f"{proxy.url}/v1/responses", held))[0].status == 200


def _is_result(element: Wire) -> bool:
    if element.get("role") == "tool" or element.get("type") == "function_call_output":
        return True
    content = element.get("content")
    return isinstance(content, list) and any(part.get("type") == "tool_result" for part in content)


async def test_a_history_that_the_upstream_holds_has_no_side_of_its_own(client, start_proxy) -> None:
    """Its first message is not known, so it is observed as soon as any session is."""
    body = {"model": "m", "input": "hi", "previous_response_id": "resp_1"}
    for share, outcome in ((0, "unchanged"), (0.000001, "observe")):
        proxy = await start_proxy(f"defaults.observe_share={share}")
        answer, _ = await post(client, f"{proxy.url}/v1/responses", body)
        assert answer.headers["x-trimtab-outcome"] == f"{outcome};history=upstream"
