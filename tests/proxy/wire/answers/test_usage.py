"""The usage in a response, under OpenAI's names and Anthropic's."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.answers.usage import Usage
from proxy.wire.chat.codec import CHAT

BIG = 10**9
READ, CREATED = "cache_read_input_tokens", "cache_creation_input_tokens"
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}


def _read_answer(body: bytes, *, is_stream: bool = False) -> Usage | None:
    """The usage in a body."""
    tap = CHAT.tap(is_stream=is_stream)
    tap.feed(body)
    tap.finish()
    return tap.usage


def _read_usage(*events: object) -> Usage | None:
    """The usage in a stream of events."""
    return _read_answer(b"".join(b"data: %s\n\n" % orjson.dumps(event) for event in events), is_stream=True)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3}, Usage(7, 3)),
        ({"prompt_tokens": 7}, Usage(7, None)),
        ({"completion_tokens": 3}, Usage(None, 3)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0)),
        (
            {"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": 5}},
            Usage(7, None, 5),
        ),
        ({"prompt_tokens": 7, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 2}, Usage(7, None)),
        ({"input_tokens": 7, "output_tokens": 3}, Usage(7, 3)),
        ({"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}}, Usage(7, 3, 5)),
        (
            {"input_tokens": 7, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 2}},
            Usage(7, 3, reasoning_tokens=2),
        ),
        ({"input_tokens": 7, "output_tokens": 3, READ: 100, CREATED: 20}, Usage(127, 3, 100)),
        ({"input_tokens": 7, "output_tokens": 3, READ: None, CREATED: 20}, Usage(27, 3)),
        ({"input_tokens": 0, READ: 100}, Usage(100, None, 100)),
        (
            {"prompt_tokens": 7, "input_tokens": 9, "completion_tokens": 3, "output_tokens": 4, READ: 100},
            Usage(7, 3, 100),
        ),
        ({"prompt_tokens": None, "input_tokens": 9, "completion_tokens": None, "output_tokens": 4}, Usage(9, 4)),
        ({"prompt_tokens": BIG, "completion_tokens": BIG}, Usage(BIG, BIG)),
        ({"input_tokens": 1, READ: BIG, CREATED: BIG}, Usage(2 * BIG + 1, None, BIG)),
        ({"prompt_tokens": BIG + 1, "completion_tokens": 3}, None),
        ({"prompt_tokens": -1}, None),
        ({"input_tokens": 2**63}, None),
        ({"input_tokens": "7"}, None),
        ({"input_tokens": 7, READ: "many"}, None),
        ({"input_tokens": True}, None),
        ([7, 3], None),
        (7, None),
        (None, None),
    ],
)
def test_usage_is_understood_by_either_naming(usage: object, expected: Usage | None) -> None:
    """In a response, in an event, and in Anthropic's first event. Cached tokens are part of the prompt."""
    answer = {"usage": usage}

    assert _read_answer(orjson.dumps(answer)) == expected
    assert _read_usage(answer) == expected
    assert _read_usage({"type": "message_start", "message": answer}) == expected


def test_an_empty_usage_says_nothing() -> None:
    """It gives tokens neither for the prompt nor for the completion."""
    usage = _read_answer(b'{"usage":{}}')

    assert usage in (None, Usage())


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 7, READ: 100, "output_tokens": 1}}},
                {"type": "message_delta", "usage": {"output_tokens": 30}},
            ],
            Usage(107, 30, 100),
        ),
        (
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}},
                {"type": "message_delta", "usage": {"input_tokens": 7, READ: 100, "output_tokens": 30}},
            ],
            Usage(107, 30, 100),
        ),
        ([{"usage": {"prompt_tokens": 7}}, {"usage": {"completion_tokens": 3}}], Usage(7, 3)),
        ([{"usage": {"prompt_tokens": 7, "completion_tokens": count}} for count in (1, 2, 3)], Usage(7, 3)),
        ([USAGE, {"usage": None}, {}], Usage(7, 3)),
        ([USAGE, {"usage": {}}], Usage(7, 3)),
        ([USAGE, {"usage": {"prompt_tokens": BIG + 1}}, {"message": {"usage": -5}}], Usage(7, 3)),
        ([{"message": "an error's"}, {"message": None}, {"message": ["x"]}, {"message": {}}, USAGE], Usage(7, 3)),
        ([{"message": {"usage": {"input_tokens": 7}}, "usage": {"output_tokens": 3}}], Usage(7, 3)),
    ],
)
def test_usage_is_put_together_from_what_the_events_say(events: list[dict[str, object]], expected: Usage) -> None:
    """A value that a later event leaves out, or gives in a wrong form, stays."""
    assert _read_usage(*events) == expected


@pytest.mark.parametrize("later", [{"input_tokens": 7}, {"input_tokens": 7, READ: 0}, {"input_tokens": 0, READ: None}])
def test_a_prompt_does_not_shrink_while_it_is_answered(later: dict[str, object]) -> None:
    """Anthropic's numbers only grow: a last event without the cached tokens does not lower the count."""
    started = {"type": "message_start", "message": {"usage": {"input_tokens": 7, READ: 100, "output_tokens": 1}}}

    last = {"type": "message_delta", "usage": {"output_tokens": 30} | later}

    assert _read_usage(started, last) == Usage(107, 30, 100)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["usage", "message", "prompt_tokens", "input_tokens", READ]), inner)
    ),
)


@given(JSON)
def test_whatever_stands_for_a_usage_is_a_number_or_none(answer: object) -> None:
    """For any JSON."""
    usage = _read_usage({"usage": answer, "message": answer})

    for tokens in (usage.prompt_tokens, usage.completion_tokens) if usage else ():
        assert tokens is None or 0 <= tokens <= 3 * BIG
