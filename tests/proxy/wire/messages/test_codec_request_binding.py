"""Thinking that a model has bound to what was before it."""

from dataclasses import replace

import orjson
import pytest

from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.wire.dialects import read_request
from trimtab.proxy.wire.messages.codec import BETA, HEADER, drop_thinking
from trimtab.proxy.wire.routing import binds_thinking
from trimtab.rules.policy import OverflowStrategy, Policy

THOUGHT = {"type": "thinking", "thinking": "It may be the cache.", "signature": "c2ln" * 40}
HIDDEN = {"type": "redacted_thinking", "data": "c2ln" * 40}
FEW = "".join(f"line {number}: nothing of note in here\n" for number in range(12))
LONG = FEW * 250
ADDED = {"prefix_mismatch_behavior": "drop_block"}
PRUNES = Policy(context_window=4_000, completion_reserve=0, overflow_strategy=OverflowStrategy.PRUNE)
WIDE = Policy(context_window=200_000)


def _step(number: int, *said: dict[str, object], output: str = FEW) -> list[dict[str, object]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"run {number}\n{output}"}
    return [{"role": "assistant", "content": [*said, call]}, {"role": "user", "content": [result]}]


def _body(model: str = "claude-sonnet-5-5", *said: dict[str, object], steps: int = 60, **members: object) -> bytes:
    """A session that is too long: its old results are pruned."""
    elements = [element for number in range(steps) for element in _step(number, *(said or (THOUGHT,)))]
    body = {"model": model, "max_tokens": 900, "messages": [{"role": "user", "content": "Mend it."}, *elements]}
    return orjson.dumps(body | members)


def _compact(body: bytes, policy: Policy = PRUNES):
    """The compacted request."""
    compactor = Compactor(lambda text: len(text) // 4)
    planned = compactor.plan(read_request(body, "messages"), policy)
    return compactor.apply(planned, None)


def _rules(compacted: Compacted) -> list[str]:
    return [decision.rule for decision in compacted.decisions]


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        ("claude-fable-5-1", True),
        ("us.anthropic.claude-haiku-5-5-v1:0", True),
        ("claude-mythos-6", True),
        ("claude-opus-5-20260901", False),
        ("claude-sonnet-4-6", False),
        ("gpt-5.5", False),
    ],
)
def test_newer_models_bind_their_thinking(model: str, *, binds: bool) -> None:
    """The version is found wherever a gateway puts the name; a date is no version."""
    assert binds_thinking(model) is binds


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"budget_tokens": 1024, "type": "enabled"}, {}])
def test_the_setting_is_added_to_the_clients_own(thinking: dict[str, object], *, is_behind: bool) -> None:
    """It may be before or behind the messages; the other members keep their bytes."""
    body = _body(thinking=thinking)
    if not is_behind:
        body = b'{"thinking":' + orjson.dumps(thinking) + b"," + _body()[1:]
    compacted = _compact(body)
    after, before = orjson.loads(compacted.body), orjson.loads(body)

    assert after["thinking"] == {**thinking, "block_binding": ADDED}
    assert compacted.headers == ((HEADER, BETA),)
    assert {**after, "thinking": 0, "messages": 0} == {**before, "thinking": 0, "messages": 0}
    assert _rules(compacted)[-1] == "thinking"
    assert len(_rules(compacted)) > 1


def test_a_model_that_thinks_unasked_gets_the_setting_too() -> None:
    """A body without the member gets one that changes nothing else."""
    compacted = _compact(_body())
    assert orjson.loads(compacted.body)["thinking"] == {"type": "adaptive", "block_binding": ADDED}


@pytest.mark.parametrize(
    "body",
    [
        _body("claude-sonnet-4-6", thinking={"type": "enabled", "budget_tokens": 1024}),
        _body("claude-sonnet-5-5", {"type": "text", "text": "I run it."}),
        _body(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}),
        _body(thinking={"type": "of a later version"}),
        _body(thinking={"type": 7}),
        _body(thinking="often"),
    ],
    ids=["older model", "nothing thought", "the client's own", "unknown", "no type", "odd"],
)
def test_the_setting_is_left_out(body: bytes) -> None:
    """Only the messages change."""
    compacted = _compact(body)
    after, before = orjson.loads(compacted.body), orjson.loads(body)

    assert compacted.headers == ()
    assert {**after, "messages": 0} == {**before, "messages": 0}
    assert after["messages"] != before["messages"]
    assert "thinking" not in _rules(compacted)


def test_what_is_truncated_from_the_first_request_on_needs_no_setting() -> None:
    """The model has seen nothing else, so no answer was given behind other messages."""
    steps = [element for number in range(5) for element in _step(number, THOUGHT, output=LONG)]
    said = [{"role": "user", "content": "Mend it."}, *steps]
    body = orjson.dumps({"model": "claude-fable-5-1", "max_tokens": 9, "messages": said})
    compacted = _compact(body, WIDE)
    assert compacted.headers == ()
    assert "thinking" not in orjson.loads(compacted.body)
    assert _rules(compacted) == ["truncate"]


@pytest.mark.parametrize("is_before", [False, True])
def test_a_text_that_thinking_is_bound_to_is_not_shortened(*, is_before: bool) -> None:
    """The model has written both in one answer, so it has seen the whole text."""
    text = {"type": "text", "text": LONG}
    answer = {
        "role": "assistant",
        "content": [THOUGHT, text, *([HIDDEN] if is_before else []), _step(1)[0]["content"][0]],
    }
    said = [{"role": "user", "content": "Mend it."}, answer, _step(1)[1]]
    body = orjson.dumps({"model": "claude-fable-5-1", "max_tokens": 9, "messages": said})
    compacted = _compact(body, replace(WIDE, max_message_tokens=400))
    assert (compacted.body == body) is is_before


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("said", [(THOUGHT,), (HIDDEN,), (THOUGHT, {"type": "text", "text": "I run it."})])
def test_a_request_that_turns_thinking_off_is_sent_without_any(
    said: tuple[dict[str, object], ...], *, is_behind: bool
) -> None:
    """It cannot have the setting. Everything else is as for a model that does not bind its thinking."""
    setting = {"type": "disabled"}
    bound, free = (_body(model, *said, thinking=setting) for model in ("claude-opus-5-5", "claude-opus-4-8"))
    if not is_behind:
        bound, free = (
            b'{"thinking":{"type":"disabled"},' + one[1:].replace(b',"thinking":{"type":"disabled"}', b"")
            for one in (bound, free)
        )
    compacted, other = _compact(bound), orjson.loads(_compact(free).body)

    assert compacted.headers == ()
    assert _rules(compacted)[-1] == "thinking"
    for message in other["messages"]:
        if message["role"] == "assistant":
            message["content"] = [block for block in message["content"] if block not in (THOUGHT, HIDDEN)]
    assert orjson.loads(compacted.body) == {**other, "model": "claude-opus-5-5"}


def test_an_answer_that_was_only_thinking_leaves_a_line() -> None:
    """A message without content would be refused."""
    raw = orjson.dumps({"role": "assistant", "content": [THOUGHT, HIDDEN]})
    assert orjson.loads(drop_thinking(raw))["content"] == [{"type": "text", "text": "(no answer)"}]


@pytest.mark.parametrize(
    "element",
    [
        {"role": "user", "content": [THOUGHT]},
        {"role": "assistant", "content": [{"type": "text", "text": '"thinking"'}]},
        {"role": "assistant"},
    ],
)
def test_an_element_without_thinking_keeps_its_bytes(element: dict[str, object]) -> None:
    """The word alone is no block."""
    raw = orjson.dumps(element, option=orjson.OPT_INDENT_2)
    assert drop_thinking(raw) == raw
