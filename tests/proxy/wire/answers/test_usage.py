"""The usage in a response, in every spelling of its upstreams."""

from typing import Any
from unittest import mock

import msgspec
import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.steps import check_linear

from trimtab.proxy.wire.answers.tap import Tap
from trimtab.proxy.wire.answers.usage import (
    MAX_USAGE_BYTES,
    MOST_HIDDEN_TOKENS,
    MOST_WINDOWS,
    STRIDE_BYTES,
    Usage,
    UsageScan,
    believe,
    read_usage,
)
from trimtab.proxy.wire.chat.codec import CHAT

BIG = 10**9
READ, CREATED = "cache_read_input_tokens", "cache_creation_input_tokens"
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
STARTED = {"type": "message_start"}


def _read_answer(body: bytes, *, is_stream: bool = False) -> Usage | None:
    tap = Tap.of(CHAT, is_stream=is_stream)
    tap.feed(body)
    tap.finish()
    return tap.usage


def _read_usage(*events: object) -> Usage | None:
    return _read_answer(b"".join(b"data: %s\n\n" % orjson.dumps(event) for event in events), is_stream=True)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3}, Usage(7, 3)),
        (
            {"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": 5}},
            Usage(7, None, 5),
        ),
        (
            {"input_tokens": 7, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 2}},
            Usage(7, 3, reasoning_tokens=2),
        ),
        ({"input_tokens": 7, "output_tokens": 3, READ: None, CREATED: 20}, Usage(27, 3, None, 0, 20)),
        (
            {"prompt_tokens": 7, "input_tokens": 9, "completion_tokens": 3, "output_tokens": 4, READ: 100},
            Usage(107, 3, 100),
        ),
        ({"prompt_tokens": None, "input_tokens": 9, "completion_tokens": None, "output_tokens": 4}, Usage(9, 4)),
        ({"prompt_tokens": BIG, "completion_tokens": BIG}, Usage(BIG, BIG)),
        ({"input_tokens": 1, READ: BIG, CREATED: BIG}, Usage(2 * BIG + 1, None, BIG, 0, BIG)),
        ({"prompt_tokens": BIG + 1, "completion_tokens": 3}, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": "7", "completion_tokens": "3", "cached_tokens": "5"}, Usage(7, 3, 5)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": "5"}, "cache_creation": 1}, Usage(7, None, 5)),
        ({"input_tokens": "seven"}, None),
        ({"input_tokens": 7, READ: "many"}, Usage()),
        ({"input_tokens": True}, None),
        (7, None),
    ],
)
def test_usage_is_understood_by_either_naming(usage: object, expected: Usage | None) -> None:
    """In a response, in an event, and in Anthropic's first event. Cached tokens are part of the prompt."""
    answer = {"usage": usage}

    assert _read_answer(orjson.dumps(answer)) == expected
    assert _read_usage(answer) == expected
    assert _read_usage({"type": "message_start", "message": answer}) == expected


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
                {"type": "message_delta", "usage": {"input_tokens": 7, READ: 100, "output_tokens": 30}},
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
        ([USAGE, {"usage": {"prompt_tokens": BIG + 1}}, {**STARTED, "message": {"usage": -5}}], Usage(7, 3)),
        ([*({**STARTED, "message": odd} for odd in ("an error's", None, ["x"], {})), USAGE], Usage(7, 3)),
        ([USAGE, {"message": {"usage": {"input_tokens": 9}}}], Usage(7, 3)),
        (
            [{**STARTED, "message": {"usage": {"input_tokens": 7}}, "usage": {"output_tokens": 3}}],
            Usage(7, 3),
        ),
    ],
)
def test_usage_is_put_together_from_what_the_events_say(events: list[dict[str, object]], expected: Usage) -> None:
    """A value that a later event leaves out, or gives in a wrong form, stays."""
    assert _read_usage(*events) == expected


SPELLINGS = {
    "openai since gpt-5.6": (
        {"prompt_tokens": 2006, "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 896}},
        (2006, 1024, 896),
    ),
    "anthropic": (
        {
            "input_tokens": 3,
            CREATED: 5424,
            READ: 1000,
            "cache_creation": {"ephemeral_5m_input_tokens": 424, "ephemeral_1h_input_tokens": 5000},
        },
        (6427, 1000, 5424),
    ),
    "anthropic by lifetime alone": (
        {"input_tokens": 3, READ: 0, "cache_creation": {"ephemeral_1h_input_tokens": 5000}},
        (5003, 0, 5000),
    ),
    "deepseek without their sum": ({"prompt_cache_hit_tokens": 256, "prompt_cache_miss_tokens": 44}, (300, 256, None)),
    "deepseek": (
        {"prompt_tokens": 300, "prompt_cache_hit_tokens": 256, "prompt_cache_miss_tokens": 44},
        (300, 256, None),
    ),
    "moonshot": ({"prompt_tokens": 1336, "total_tokens": 1367, "cached_tokens": 1280}, (1336, 1280, None)),
    "databricks": ({"prompt_tokens": 199, READ: 163}, (199, 163, None)),
    "gateway with both names": (
        {
            "prompt_tokens": 500,
            "prompt_tokens_details": {"cached_tokens": 0},
            "input_tokens_details": {"cached_tokens": 9},
        },
        (500, 9, None),
    ),
    "vllm, silent": ({"prompt_tokens": 25, "prompt_tokens_details": None}, (25, None, None)),
    "xai": ({"prompt_tokens": 199, "cached_prompt_text_tokens": 163}, (199, 163, None)),
    "perplexity": ({"input_tokens": 199, "input_tokens_details": {READ: 163}}, (199, 163, None)),
    "responses, with anthropic's names beside": (
        {"input_tokens": 199, "input_tokens_details": {"cached_tokens": 163}, READ: 163},
        (199, 163, None),
    ),
    "qwen": (
        {
            "prompt_tokens": 1503,
            "prompt_tokens_details": {
                "cached_tokens": 0,
                "cache_type": "ephemeral",
                CREATED: 1494,
                "cache_creation": {"ephemeral_5m_input_tokens": 1494},
            },
        },
        (1503, 0, 1494),
    ),
    "litellm": (
        {
            "prompt_tokens": 1284,
            "prompt_tokens_details": {"cached_tokens": 30, "cache_creation_tokens": 1253},
            CREATED: 1253,
            READ: 30,
        },
        (1284, 30, 1253),
    ),
    "litellm, without the cached part": (
        {"prompt_tokens": 31, "prompt_tokens_details": {"cached_tokens": 0}, CREATED: 1253, READ: 0},
        (1284, 0, 1253),
    ),
}
"""Sources: the docstrings of proxy/wire/answers/usage.py."""


@pytest.mark.parametrize(("told", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_each_upstreams_spelling_of_its_cache_is_read(
    told: dict[str, Any], expected: tuple[int, int | None, int | None]
) -> None:
    """Zero that is reported is not the same as nothing reported."""
    usage = _read_usage({"usage": {**told, "completion_tokens": 3}})

    assert (usage.prompt_tokens, usage.cached_tokens, usage.written_tokens) == expected


def test_moonshot_reports_in_the_last_choice_and_groq_in_a_member_of_its_own() -> None:
    """A later event without usage keeps it; the first event of Groq's has only an id there."""
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 1336, "cached_tokens": 1280}}

    assert _read_usage({"choices": [choice]}, {"choices": []}) == Usage(1336, None, 1280)
    events = (
        {"choices": [], "x_groq": {"id": "req_1"}},
        {"choices": [], "x_groq": {"id": "req_1", "usage": USAGE["usage"]}},
    )

    assert _read_usage(*events) == Usage(7, 3)
    assert _read_usage(*events, {"choices": [], "x_groq": None}) == Usage(7, 3)
    assert _read_usage({"choices": [], "x_groq": [7]}, {"choices": "odd", "x_groq": USAGE}) == Usage(7, 3)


@pytest.mark.parametrize(
    ("usage", "timings", "cached"),
    [
        ({"prompt_tokens": 11}, {"cache_n": 7, "prompt_n": 4}, 7),
        ({"prompt_tokens": 11}, {"cache_n": 0, "prompt_n": 11}, 0),
        ({"prompt_tokens": 11}, {"cache_n": 70}, 11),
        ({"prompt_tokens": 11, "prompt_tokens_details": {"cached_tokens": 5}}, {"cache_n": 7}, 5),
        ({"prompt_tokens": 11}, {"cache_n": "some"}, None),
    ],
)
def test_llama_reports_its_cache_beside_the_usage(
    usage: dict[str, object], timings: object, cached: int | None
) -> None:
    """Its usage counts first, if it has details."""
    for read in (
        _read_usage({"usage": usage, "timings": timings}),
        _read_answer(orjson.dumps({"choices": [], "usage": usage, "timings": timings})),
    ):
        assert read.cached_tokens == cached


def test_a_stream_of_llama_without_usage_has_its_timings() -> None:
    """They may come with each piece of the text. A usage that is reported counts first."""
    pieces = [{"choices": [], "timings": {"cache_n": 7, "prompt_n": 4, "predicted_n": number}} for number in (1, 2, 30)]

    assert _read_usage(*pieces) == Usage(11, 30, 7, has_timings=True)
    assert _read_usage(*pieces, {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 31}}) == Usage(
        12, 31, 7, has_timings=True
    )


@pytest.mark.parametrize(
    "name", [READ, CREATED, "cached_tokens", "prompt_cache_hit_tokens", "prompt_tokens_details", "cache_creation"]
)
def test_a_malformed_part_counts_as_absent(name: str) -> None:
    told = {"prompt_tokens": 9, "completion_tokens": 3, "cached_prompt_text_tokens": 2}
    for malformed in ("five", "-5", -5, 5.5, True, [5], {"tokens": 5}, BIG + 1):
        assert _read_usage({"usage": {**told, name: malformed}}) == Usage(9, 3, 2), malformed


def test_what_was_read_is_put_together_from_the_parts_of_a_stream() -> None:
    """A last event that leaves out the cached tokens, or has zeros, does not lower them."""
    started = {"type": "message_start", "message": {"usage": {"input_tokens": 7, READ: 100, CREATED: 20}}}

    for later in ({}, {"input_tokens": 7, READ: 0, CREATED: 0}, {"input_tokens": 7, READ: 100, CREATED: 20}):
        last = {"type": "message_delta", "usage": {"output_tokens": 30} | later}
        assert _read_usage(started, last) == Usage(127, 30, 100, 0, 20)


COUNTS = st.none() | st.integers(-1, 3000) | st.sampled_from([BIG, BIG + 1, 2**70, "7", 7.5])
DETAILS = ("cached_tokens", READ, "cache_write_tokens", "cache_creation_tokens", CREATED)
TOLD = st.dictionaries(
    st.sampled_from(
        "prompt_tokens input_tokens completion_tokens cached_tokens cached_prompt_text_tokens prompt_cache_hit_tokens "
        f"prompt_cache_miss_tokens {READ} {CREATED}".split()
    ),
    COUNTS,
)
CREATION = st.dictionaries(st.sampled_from(["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]), COUNTS)
INNER = st.dictionaries(st.sampled_from(DETAILS), COUNTS) | CREATION.map(lambda told: {"cache_creation": told})
USAGES = st.builds(
    lambda told, more: told | more,
    TOLD,
    st.fixed_dictionaries(
        {}, optional={"prompt_tokens_details": INNER, "input_tokens_details": INNER, "cache_creation": CREATION}
    ),
)


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_cached_written_and_fresh_tokens_add_up_to_the_prompt(events: list[dict[str, Any]]) -> None:
    """For any usage, in one event or in several. None of the three is negative."""
    usage: Usage | None = None
    for event in events:
        try:
            usage = read_usage(msgspec.Raw(msgspec.json.encode(event)), usage)
        except msgspec.ValidationError:
            continue  # a main count is malformed; the event says nothing
    assume(usage is not None and usage.prompt_tokens is not None)
    assert usage.prompt_tokens is not None

    cached, written = usage.cached_tokens or 0, usage.written_tokens or 0
    assert cached >= 0
    assert written >= 0
    assert usage.prompt_tokens - cached - written >= 0


MOST = MOST_WINDOWS * 1000
"""What a model with a window of 1000 tokens is believed at most."""


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        (Usage(MOST, 5, 3, 0, 2), Usage(MOST, 5, 3, 0, 2)),
        (Usage(MOST + 1, 5, 3, 0, 2), Usage(None, 5, None, 0, None)),
        (Usage(7, MOST_HIDDEN_TOKENS), Usage(7, MOST_HIDDEN_TOKENS)),
        (Usage(7, MOST_HIDDEN_TOKENS + 1), Usage(7, None)),
        (Usage(7, MOST_HIDDEN_TOKENS + 1, None, 1), Usage(7, MOST_HIDDEN_TOKENS + 1, None, 1)),
        (Usage(7, MOST, None, MOST), Usage(7, MOST, None, MOST)),
        (Usage(7, MOST + 1, None, MOST + 1), Usage(7, None, None, 0)),
    ],
)
def test_figures_that_cannot_be_true_are_left_out(told: Usage, believed: Usage) -> None:
    """Neither many windows in one prompt, nor more tokens than an answer has bytes. Reasoning need not be sent."""
    assert believe(told, answer_bytes=100, window_tokens=1000) == believed


def test_a_long_answer_may_have_many_tokens() -> None:
    long = Usage(7, MOST_HIDDEN_TOKENS + 50)
    for answer_bytes, expected in ((MOST_HIDDEN_TOKENS + 50, long), (MOST_HIDDEN_TOKENS + 49, Usage(7, None))):
        assert believe(long, answer_bytes=answer_bytes, window_tokens=1000) == expected


NAMES = st.sampled_from(["usage", "response", "message", "x", 'a"usage', "\\usage", '"', "}", "\\"])
TEXTS = NAMES | st.sampled_from(['"usage":{', '\\"usage": {', 'say "usage', "a}{][", "\\\\", ": {"])
VALUES = st.recursive(
    st.integers(0, 9) | st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=25,
)
UNITS = (
    b'"response":{"usage":{}},',
    b"[",
    b"[[[[[[[[]]]]]]]]",
    b'"",',
    b'\\"',
    b'"',
)


def scan(answer: bytes, size: int, *, is_event: bool = False) -> UsageScan:
    found = UsageScan(is_event=is_event)
    for at in range(0, len(answer), size):
        found.feed(answer[at : at + size])
    found.finish()
    return found


def find_usage(answer: dict[str, Any], *, is_event: bool) -> dict[str, Any] | None:
    whole = answer.get("response") if is_event else answer
    usage = whole.get("usage") if isinstance(whole, dict) else None
    return usage if isinstance(usage, dict) else None


@given(
    answer=st.dictionaries(NAMES, VALUES, max_size=6),
    is_loose=st.booleans(),
    is_event=st.booleans(),
    size=st.sampled_from([1, 3, 17, 1000]),
    stride_bytes=st.sampled_from([130, 200, STRIDE_BYTES]),
)
def test_what_is_found_is_what_a_decoder_finds_at_its_place(
    answer: dict[str, Any], size: int, stride_bytes: int, *, is_loose: bool, is_event: bool
) -> None:
    """However the answer is cut and written, and whatever else is called `usage` in it."""
    written = orjson.dumps(answer, option=orjson.OPT_INDENT_2 if is_loose else None)
    with mock.patch("trimtab.proxy.wire.answers.usage.STRIDE_BYTES", stride_bytes):
        found = scan(written, size, is_event=is_event)
    told = None if found.value is None else orjson.loads(found.value)
    assert told == find_usage(answer, is_event=is_event)
    assert found.is_whole


@given(
    answer=st.binary(max_size=300) | st.text('{}[]":\\ usage,', max_size=300).map(str.encode), size=st.integers(1, 99)
)
def test_whatever_comes_is_read(answer: bytes, size: int) -> None:
    assert isinstance(scan(answer, size).value, bytes | None)


def test_an_answer_that_breaks_off_is_not_whole() -> None:
    """Its usage is found if it is complete. One that is too long is not read."""
    answer = b'{"usage":{"a":1},"text":"x'
    assert (scan(answer, 7).value, scan(answer, 7).is_whole) == (b'{"a":1}', False)
    assert scan(answer[:15], 7).value is None
    long = b'{"usage":{"a":"%b"}}' % (b"x" * MAX_USAGE_BYTES)
    assert (scan(long, 999).value, scan(long, 999).is_whole) == (None, True)


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_is_linear_whatever_the_answer_holds(unit: bytes) -> None:
    """Of members called usage, of brackets, quotation marks and escapes, open or closed."""
    for start in (b'{"a":[', b'{"a":"', b'{"response":{', b"{"):
        check_linear(lambda size, start=start: scan(start + unit * (size // len(unit)), STRIDE_BYTES), 25_000)
