"""Long arguments of calls through the three dialects: the call stays what its tool takes, and all else its bytes."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import orjson
import pytest

from trimtab import Compactor, Result, make_policy

POLICY = make_policy(context_window=16000, high_water=0.8, low_water=0.5, overflow_strategy="prune")
TEXT = "\n".join(f"def function_{number}(x): return x * {number}" for number in range(200))
Wire = dict[str, Any]
Write = Callable[[int, Wire], list[Wire]]


def chat(number: int, given: Wire) -> list[Wire]:
    """A step in chat: the arguments are a text, and the content is null or absent."""
    function = {"name": "write_file", "arguments": orjson.dumps(given, option=orjson.OPT_INDENT_2).decode()}
    content = {"content": None} if number % 2 else {}
    calls = [{"id": f"c{number}", "type": "function", "index": 0, "function": function}]
    return [
        {"role": "assistant", **content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "Written."},
    ]


def messages(number: int, given: Wire) -> list[Wire]:
    """A step in Messages: the arguments are an object, and thinking stands before them."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": f"s{number}"}
    use = {"type": "tool_use", "id": f"c{number}", "name": "write_file", "input": given, "caller": {"type": "direct"}}
    done = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "Written."}
    return [{"role": "assistant", "content": [thinking, use]}, {"role": "user", "content": [done]}]


def responses(number: int, given: Wire) -> list[Wire]:
    """A step in Responses: items with ids, and encrypted reasoning before the call."""
    sealed = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA" * 9}
    said = orjson.dumps(given).decode()
    made = {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "write_file"}
    return [
        sealed,
        {**made, "arguments": said},
        {"type": "function_call_output", "call_id": f"c{number}", "output": "Ok"},
    ]


def read_given(wire: Wire) -> Wire | None:
    """The arguments of the call in an element, in any dialect."""
    if wire.get("type") == "function_call":
        return dict(orjson.loads(wire["arguments"]))
    if calls := wire.get("tool_calls"):
        return dict(orjson.loads(calls[0]["function"]["arguments"]))
    content = wire.get("content")
    uses = [block for block in content if block.get("type") == "tool_use"] if isinstance(content, list) else []
    return dict(uses[0]["input"]) if uses else None


def without_content(value: Any) -> Any:
    """An element without what was written to the file, in all forms."""
    if isinstance(value, dict):
        return {key: without_content(item) for key, item in value.items() if key != "content" or not _is_text(item)}
    if isinstance(value, list):
        return list(map(without_content, value))
    return without_content(orjson.loads(value)) if isinstance(value, str) and value[:1] == "{" else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "def function" in value


def grow(write: Write, dialect: str, **more: Any) -> list[tuple[list[Wire], Result]]:
    """Each request of a growing session, with what it became."""
    compactor, wires, grown = Compactor(POLICY, dialect=dialect), [{"role": "user", "content": "Go."}], []
    for number in range(10):
        given = {"path": f"src/{number}.py", "content": f"# {number}\n{TEXT}", "mode": 7, "force": True, **more}
        wires = [*wires, *write(number, given)]
        grown.append((wires, compactor.compact(wires)))
    return grown


@pytest.mark.parametrize("write", [chat, messages, responses])
def test_a_stale_call_keeps_its_form_and_only_the_long_text_is_short(write: Write) -> None:
    """Ids, signatures, sealed reasoning, other arguments and other members stay."""
    wires, result = grow(write, write.__name__)[-1]
    assert [decision.rule for decision in result.decisions] == ["arguments"]
    assert len(result.messages) == len(wires)
    changed = [at for at, (old, new) in enumerate(zip(wires, result.messages, strict=True)) if old != new]
    assert len(changed) >= 5
    for at in changed:
        given, left = read_given(wires[at]), read_given(result.messages[at])
        assert given is not None
        assert left is not None
        assert {**left, "content": given["content"]} == given
        assert len(left["content"]) < len(given["content"]) / 3
        assert "[trimtab: omitted" in left["content"]
        assert "the call had this part]" in left["content"]
        assert without_content(result.messages[at]) == without_content(wires[at])


@pytest.mark.parametrize("write", [chat, messages, responses])
def test_what_was_forwarded_is_forwarded_again(write: Write) -> None:
    """The beginning changes only where more calls become short; a fresh compactor forwards the same."""
    grown, moves = grow(write, write.__name__), 0
    for (_, before), (_, after) in pairwise(grown):
        moves += after.messages[: len(before.messages)] != before.messages
    wires, after = grown[-1]
    again = Compactor(POLICY, dialect=write.__name__).compact(wires)
    assert orjson.dumps(again.messages) == orjson.dumps(after.messages)
    assert 1 <= moves <= 5


@pytest.mark.parametrize("write", [chat, messages, responses])
def test_the_figures_are_those_of_what_is_sent(write: Write) -> None:
    """Who counts the forwarded request gets the tokens that are told."""
    _, result = grow(write, write.__name__)[-1]
    counted = Compactor(make_policy(context_window=1_000_000), dialect=write.__name__).compact(result.messages)
    assert counted.tokens.original == result.tokens.sent
    assert result.tokens.original - result.tokens.sent == sum(one.saved_tokens for one in result.decisions) > 0


def _sign_chat(number: int, given: Wire) -> list[Wire]:
    made, done = chat(number, given)
    signed = {**made["tool_calls"][0], "extra_content": {"google": {"thought_signature": "abc"}}}
    return [{**made, "tool_calls": [signed]}, done]


def _detail_chat(number: int, given: Wire) -> list[Wire]:
    made, done = chat(number, given)
    return [{**made, "reasoning_details": [{"type": "reasoning.encrypted", "id": f"c{number}", "data": "abc"}]}, done]


def _think_behind(number: int, given: Wire) -> list[Wire]:
    made, done = messages(number, given)
    return [{**made, "content": made["content"][::-1]}, done]


def _program(number: int, given: Wire) -> list[Wire]:
    made, done = messages(number, given)
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    return [{**made, "content": [made["content"][0], {**made["content"][1], "caller": caller}]}, done]


@pytest.mark.parametrize(
    ("write", "dialect"),
    [(_sign_chat, "chat"), (_detail_chat, "chat"), (_think_behind, "messages"), (_program, "messages")],
)
def test_a_call_that_a_signature_may_cover_stays(write: Write, dialect: str) -> None:
    """The provider would refuse another text, or lose its reasoning."""
    for _, result in grow(write, dialect):
        assert "arguments" not in {decision.rule for decision in result.decisions}


def test_a_patch_of_a_custom_tool_is_shortened_as_a_text() -> None:
    """Codex's `apply_patch` takes no JSON."""

    def patch(number: int, given: Wire) -> list[Wire]:
        text = f"*** Begin Patch\n*** Add File: {given['path']}\n+{given['content']}\n*** End Patch"
        made = {"type": "custom_tool_call", "id": f"ct_{number}", "call_id": f"c{number}", "name": "apply_patch"}
        return [
            {**made, "status": "completed", "input": text},
            {"type": "custom_tool_call_output", "call_id": f"c{number}", "output": "Done!"},
        ]

    wires, result = grow(patch, "responses")[-1]
    assert [decision.rule for decision in result.decisions] == ["arguments"]
    assert {**result.messages[1], "input": ""} == {**wires[1], "input": ""}
    assert result.messages[1]["input"].startswith("*** Begin Patch\n*** Add File: src/0.py\n")
    assert len(result.messages[1]["input"]) < len(wires[1]["input"]) / 3
