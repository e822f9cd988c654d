"""Thinking in chat requests: how much a request allows, and what no longer fits."""

from typing import Any

import orjson
import pytest

from trimtab.proxy.compaction.compactor import Compacted, Compactor
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.chat.thinking import drop_thinking
from trimtab.rules.policy import OverflowStrategy, Policy

PRUNES = Policy(context_window=4_000, completion_reserve=0, overflow_strategy=OverflowStrategy.PRUNE)
SEALED = {"thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "c2ln"}]}
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "so", "signature": "c2ln"}]}
TEXT = "".join(f"line {number}: nothing of note in here\n" for number in range(12))


def _compact(model: str, beside: dict[str, object], steps: int = 60) -> Compacted:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Run all."}]
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "so", **beside, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": f"{step}\n{TEXT}"})
    compactor = Compactor(count_by_heuristic)
    request = CHAT.read(orjson.dumps({"model": model, "messages": messages}))
    return compactor.apply(compactor.plan(request, PRUNES), None)


@pytest.mark.parametrize("beside", [SEALED, DETAILS])
def test_all_thinking_is_left_out_once_something_before_was_changed(beside):
    """Of all messages alike, and nothing else. A transcript that stays keeps it, and so does that of another model."""
    compacted = _compact("anthropic/claude-opus-5.5", beside)
    other = _compact("anthropic/claude-opus-4.8", beside)
    assert [one.rule for one in compacted.decisions] == [*(one.rule for one in other.decisions), "thinking"]
    left, messages = orjson.loads(compacted.body)["messages"], orjson.loads(other.body)["messages"]
    assert left == [{name: value for name, value in one.items() if name not in beside} for one in messages]
    assert any(name in one for name in beside for one in messages)
    short = _compact("anthropic/claude-opus-5.5", beside, steps=2)
    assert "thinking" not in {one.rule for one in short.decisions}


def test_only_answers_lose_members():
    """A text that names them is no member."""
    for raw in (b'{"role":"user","thinking_blocks":[]}', b'{"role":"assistant","content":"\\"thinking_blocks\\""}'):
        assert drop_thinking(raw) == raw


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": None}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 9000}}, 9000),
        ({"thinking": {"type": "adaptive"}}, 0),
        ({"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 9000}}}, 9000),
        ({"extra_body": {"google": {"thinking_config": {"thinking_budget": 500}}}}, 500),
        ({"extra_body": {"reasoning": {"max_tokens": 70}, "max_tokens": 5}}, 70),
        ({"reasoning": {"max_tokens": 2000}}, 2000),
        ({"reasoning": {"effort": "high"}}, None),
        ({"thinking_budget": 700, "enable_thinking": True}, 700),
        ({"thinking_budget": -1}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": True}}, 0),
        ({"thinking": {"type": "enabled", "budget_tokens": 1e300}}, 0),
    ],
)
def test_a_budget_of_thinking_is_read_in_any_form(body: dict[str, Any], tokens: int | None) -> None:
    """None if the request does not turn thinking on itself, 0 if it names no budget."""
    kept = CHAT.copy_members(CHAT.read(orjson.dumps({"messages": [], **body})))
    assert kept is not None
    assert CHAT.read_thinking(kept) == tokens
