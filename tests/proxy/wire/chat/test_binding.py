"""Thinking that a Claude model behind a gateway has bound to what was before it."""

import orjson
import pytest

from proxy.compaction.compactor import Compacted, Compactor
from proxy.compaction.tokenizers.exact import count_by_heuristic
from proxy.wire.chat.binding import drop_thinking
from proxy.wire.chat.codec import CHAT
from rules.policy import OverflowStrategy, Policy

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
