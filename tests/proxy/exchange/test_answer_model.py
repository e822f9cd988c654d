"""The name of the model that has answered."""

from unittest.mock import Mock

import pytest
from upstreams.recording import event

from trimtab.proxy.exchange.answer import MAX_BYTES, MAX_NAME_BYTES, ModelTap, find_model


@pytest.mark.parametrize(
    ("answer", "model"),
    [
        (b'{"id": "1", "model": "gpt-5-2026-01-01", "choices": []}', "gpt-5-2026-01-01"),
        (b'{"choices":[{"delta":{"content":"say \\"model\\": \\"no\\""}}],"model":"m"}', "m"),
        (b'event: message_start\ndata: {"type":"message_start","message":{"id":"x","model":"claude-5"}}', "claude-5"),
        (b'{"model":"caf\\u00e9 \\"q\\""}', 'caf\u00e9 "q"'),
        (b'{"model":null}', ""),
        (b'{"model":7}', ""),
        (b'{"model":"' + b"x" * (MAX_NAME_BYTES + 1) + b'"}', ""),
        (b'{"model":"bad \\x escape"}', ""),
        (b'{"model":"bad \xff utf-8"}', ""),
        (b'{"model":"unfinished', ""),
        (b"", ""),
    ],
)
def test_the_first_member_names_it(answer, model) -> None:
    """The text of an answer is not taken for it. What cannot be read is no name."""
    assert find_model(answer) == model


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_name_may_be_split(step) -> None:
    """The answer is read as before, too."""
    tap, answer = (
        Mock(**{"put_off.return_value": False}),
        b'data: {"id":"1","model":"m-1","choices":[]}\n\n' + event("text"),
    )
    model_tap = ModelTap(tap, Mock(), "id")
    chunks = [answer[start : start + step] for start in range(0, len(answer), step)]
    for chunk in chunks:
        model_tap.feed(chunk, 1.0)
    assert model_tap.model == "m-1"
    assert [call.args[0] for call in tap.feed.mock_calls] == chunks


def test_only_the_beginning_is_searched() -> None:
    """So that a long answer costs nothing more."""
    model_tap = ModelTap(Mock(), Mock(), "id")
    for _ in range(3):
        model_tap.feed(b" " * (MAX_BYTES // 2), 1.0)
    model_tap.feed(b'{"model":"late"}', 1.0)
    assert (model_tap.model, len(model_tap._seen)) == ("", MAX_BYTES)
