"""Chats become valid bodies of the other dialects, with all their texts. What they cannot say is refused."""

from typing import Any

import orjson
import pytest
from support.checker import texts_of
from support.dialects.oddities import NotConvertibleError
from support.dialects.seals import is_seal, seal
from support.dialects.spoken.all_dialects import MESSAGES, RESPONSES
from support.dialects.to_messages import to_messages
from support.dialects.to_responses import to_responses
from support.sessions import OWN_DATA, read_rows

Wire = dict[str, Any]

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "out"}


@pytest.mark.parametrize(
    "messages",
    [
        (RESULT,),
        (CALL, {"role": "user", "content": "never mind"}),
        (CALL,),
        (CALL, RESULT, RESULT),
        ({"role": "user", "content": [{"type": "video"}]},),
    ],
)
@pytest.mark.parametrize("convert", [to_responses, to_messages])
def test_what_no_other_dialect_can_say_is_refused(convert, messages) -> None:
    task = [{"role": "system", "content": "s"}, {"role": "user", "content": "task"}]
    with pytest.raises(NotConvertibleError):
        convert({"messages": [*task, *messages]})


def test_a_change_of_a_seal_shows() -> None:
    text = seal("a", 1200)
    assert is_seal(text)
    assert not is_seal(text.replace(text[5], "A" if text[5] != "A" else "B", 1))


@pytest.mark.parametrize("name", ["agent", "desk", "talk"])
def test_sessions_become_valid_bodies_with_all_their_texts(name: str) -> None:
    """With and without reasoning."""
    session = next(read_rows(OWN_DATA / "conversations" / f"{name}.jsonl"))
    texts = [text for message in session["messages"] for text in texts_of(message) if text.strip()]
    for sealed in (False, True):
        responses = orjson.dumps(to_responses(session, with_reasoning=sealed))
        messages = orjson.dumps(to_messages(session, with_thinking=sealed, with_markers=sealed))
        for dialect, raw in ((RESPONSES, responses), (MESSAGES, messages)):
            assert dialect.check_request(raw, raw) == []
            assert [text for text in texts if orjson.dumps(text)[1:-1] not in raw] == []
