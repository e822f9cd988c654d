"""Thinking that a model has bound to what was before it."""

import orjson
import pytest

from proxy.compaction.compactor import Compactor
from proxy.wire.dialects import read_request
from proxy.wire.messages.binding import BETA, HEADER, binds_thinking
from rules.policy import Policy

THOUGHT = {"type": "thinking", "thinking": "It may be the cache.", "signature": "c2ln" * 40}
LONG = "".join(f"line {number}: nothing of note in here\n" for number in range(3000))
ADDED = {"prefix_mismatch_behavior": "drop_block"}


def _step(number: int, *, thinks: bool = True) -> list[dict[str, object]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": {}}
    said = [THOUGHT, call] if thinks else [call]
    output = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"run {number}\n{LONG}"}
    return [{"role": "assistant", "content": said}, {"role": "user", "content": [output]}]


def _body(model: str = "claude-sonnet-5-5", *, thinks: bool = True, **members: object) -> bytes:
    steps = [element for number in range(1) for element in _step(number, thinks=thinks)]
    body = {"model": model, "max_tokens": 900, "messages": [{"role": "user", "content": "Mend it."}, *steps]}
    return orjson.dumps(body | members)


def _compact(body: bytes):
    """The compacted request, with and without a body that this one continues: both must be the same."""
    compactor = Compactor(lambda text: len(text) // 4)
    planned = compactor.plan(read_request(body, "messages"), Policy(context_window=200_000))
    return compactor.apply(planned, None)


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        ("claude-fable-5-1", True),
        ("claude-opus-5-5-20261001", True),
        ("anthropic/claude-sonnet-5.5", True),
        ("us.anthropic.claude-haiku-5-5-v1:0", True),
        ("claude-mythos-6", True),
        ("claude-opus-5-20260901", False),
        ("claude-sonnet-4-6", False),
        ("claude-3-7-sonnet-latest", False),
        ("gpt-5.5", False),
        ("", False),
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
    assert [decision.rule for decision in compacted.decisions] == ["truncate", "thinking"]


def test_a_model_that_thinks_unasked_gets_the_setting_too() -> None:
    """A body without the member gets one that changes nothing else."""
    compacted = _compact(_body())
    assert orjson.loads(compacted.body)["thinking"] == {"type": "adaptive", "block_binding": ADDED}


@pytest.mark.parametrize(
    "body",
    [
        _body("claude-sonnet-4-6", thinking={"type": "enabled", "budget_tokens": 1024}),
        _body(thinks=False),
        _body(thinking={"type": "disabled"}),
        _body(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}),
        _body(thinking="often"),
    ],
    ids=["older model", "nothing thought", "turned off", "the client's own", "odd"],
)
def test_the_setting_is_left_out(body: bytes) -> None:
    """Only the messages change."""
    compacted = _compact(body)
    after, before = orjson.loads(compacted.body), orjson.loads(body)

    assert compacted.headers == ()
    assert {**after, "messages": 0} == {**before, "messages": 0}
    assert [decision.rule for decision in compacted.decisions] == ["truncate"]


def test_an_unchanged_transcript_is_not_touched() -> None:
    """The same bytes, and no header."""
    call = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Done."}]}
    said = [{"role": "user", "content": "Mend it."}, call, {"role": "user", "content": "Thanks."}]
    body = orjson.dumps({"model": "claude-fable-5-1", "max_tokens": 9, "messages": said})
    compacted = _compact(body)
    assert (compacted.body, compacted.headers) == (body, ())
