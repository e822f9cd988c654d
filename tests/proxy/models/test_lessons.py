"""A refusal teaches a window, a ratio, or only how much shorter this one request must become."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from trimtab.proxy.models.lessons import MAX_WINDOW_TOKENS, MIN_LIMIT_TOKENS, Lesson, Sent, draw_lesson, find_changes
from trimtab.proxy.models.records import Record
from trimtab.proxy.wire.overflow import Kind, Overflow
from trimtab.rules.policy import Policy
from trimtab.rules.tokens.scripts import IS_PLAIN, Chars, Measured, Scale

POLICY = Policy()
SENT = Sent(100_000)
ADDED = {"limit": 16_384, "requested": 22_000, "prompt_tokens": 10_000, "completion_tokens": 12_000}


def _refuse(**told: object) -> Overflow:
    return Overflow(Kind.PROMPT, "prompt is too long", **told)


@pytest.mark.parametrize(
    ("told", "sent", "lesson"),
    [
        ({"limit": 32_768, "requested": 100_500, "prompt_tokens": 100_500}, SENT, Lesson(32_768)),
        ({"limit": 128_000, "requested": 150_000, "prompt_tokens": 150_000}, SENT, Lesson(128_000, ratio=1.5)),
        (ADDED, Sent(10_000, max_tokens=12_000), Lesson(16_384, added_tokens=0)),
        (ADDED, Sent(10_000), Lesson(16_384, added_tokens=12_000)),
    ],
    ids=["a window", "a ratio, where the prompt counts for more", "a completion is added", "and chosen by the server"],
)
def test_a_refusal_in_numbers_teaches_what_it_says(told: dict[str, int], sent: Sent, lesson: Lesson):
    drawn = draw_lesson(_refuse(**told), POLICY, sent)
    assert drawn == lesson
    limit = lesson.apply(POLICY).model_limit_tokens(sent.max_tokens)
    assert lesson.added_tokens is None or 4000 < limit <= 16_384 - 12_000


def test_what_is_no_text_teaches_no_ratio_but_shrinks():
    overflow = _refuse(limit=128_000, requested=150_000, prompt_tokens=150_000)
    lesson = draw_lesson(overflow, POLICY, structs.replace(SENT, is_text=False))
    assert lesson.ratio is None
    assert lesson.ceiling_tokens is not None
    assert lesson.ceiling_tokens * 1.5 <= 128_000


@pytest.mark.parametrize(
    "overflow",
    [
        Overflow(Kind.STRING, limit=1_048_576, unit="characters"),
        Overflow(Kind.COMPLETION, limit=8192),
        _refuse(limit=8192, requested=20_000, prompt_tokens=10_000, completion_tokens=10_000),
    ],
)
def test_what_no_shorter_prompt_mends_teaches_nothing(overflow: Overflow):
    assert draw_lesson(overflow, POLICY, Sent(10_000, max_tokens=10_000)) is None


def test_without_numbers_the_guess_is_the_same_for_prompts_alike():
    guesses = {draw_lesson(_refuse(), POLICY, Sent(tokens)) for tokens in range(100_000, 104_000, 500)}
    assert len(guesses) == 1
    (guess,) = guesses
    assert not guess.is_certain
    assert 50_000 < (guess.window_tokens or 0) < 80_000


def test_a_small_prompt_or_one_with_images_teaches_no_ratio_and_no_guess():
    told = {"limit": 32_768, "requested": 36_000, "prompt_tokens": 3600, "completion_tokens": 32_400}
    for overflow in (_refuse(**told), _refuse()):
        for sent in (Sent(40, max_tokens=32_400), Sent(40_000, is_text=False)):
            lesson = draw_lesson(overflow, POLICY, sent)
            assert lesson is None or lesson.ratio is None
            assert lesson is None or lesson.window_tokens in {None, overflow.limit}


def test_a_server_that_stopped_counting_tells_how_many_at_least():
    overflow = _refuse(limit=32_768, requested=32_769, prompt_tokens=32_769)
    lesson = draw_lesson(overflow, Policy(context_window=32_768), Sent(24_000))
    assert 1.36 < (lesson.ratio or 0) < 1.37


def test_an_excess_is_taken_off():
    """An excess of the whole prompt tells nothing, nor does an absurd limit."""
    lesson = draw_lesson(_refuse(excess_tokens=60_000), POLICY, SENT)
    assert 32_000 <= (lesson.window_tokens or 0) <= 40_000
    believed_tokens = round(POLICY.token_ratio * SENT.prompt_tokens)
    for odd in (
        *({"excess_tokens": believed_tokens + more} for more in (0, 1)),
        *({"limit": limit, "requested": 10**13} for limit in (0, 1, 255, 10**9, 10**12)),
    ):
        assert draw_lesson(_refuse(**odd), POLICY, SENT) == draw_lesson(_refuse(), POLICY, SENT)


@pytest.mark.parametrize(
    ("overflow", "window_tokens", "is_certain"),
    [
        (Overflow(Kind.SIZE), 65_536, False),
        (Overflow(Kind.SIZE, limit=1_000_000, requested=2_000_000, unit="bytes"), 40_960, False),
        (Overflow(Kind.SIZE, "tokens per minute", limit=6000, requested=100_000), None, False),
        (Overflow(Kind.GENERATION), None, False),
    ],
)
def test_a_size_is_believed_once_the_second_attempt_went_through(overflow, window_tokens, is_certain):
    lesson = draw_lesson(overflow, POLICY, SENT)
    assert (lesson.window_tokens, lesson.is_certain) == (window_tokens, is_certain)
    assert lesson.ceiling_tokens is not None


@pytest.mark.parametrize(
    ("unit", "max_tokens", "ceiling_tokens"),
    [("tokens", None, 49_152), ("tokens", 20_000, 32_768), ("bytes", 20_000, 49_152)],
)
def test_the_prompts_share_of_a_size_is_taken_without_the_completion(unit, max_tokens, ceiling_tokens):
    """What the request keeps for its completion is no part of the prompt, and tokens are no bytes."""
    overflow = Overflow(Kind.SIZE, "tokens per minute", limit=53_000, requested=100_000, unit=unit)
    prompt_tokens = 95_608  # 53 % of it, less 3 %, just reach 49,152
    lesson = draw_lesson(overflow, POLICY, Sent(prompt_tokens, max_tokens=max_tokens))
    assert lesson.ceiling_tokens == ceiling_tokens


_number = st.none() | st.integers(0, 10**13) | st.integers(200, 300_000)
_overflows = st.builds(
    Overflow,
    st.sampled_from(list(Kind)),
    limit=_number,
    requested=_number,
    prompt_tokens=_number,
    completion_tokens=_number,
    excess_tokens=_number,
    unit=st.sampled_from(["tokens", "bytes", "characters"]),
)
_sent = st.builds(Sent, st.integers(1, 2_000_000), st.none() | st.integers(1, 10**9), st.booleans())
_policies = st.builds(Policy, context_window=st.integers(1024, 10**7), token_ratio=st.floats(0.2, 6.0))


@given(overflow=_overflows, sent=_sent, policy=_policies)
def test_a_retry_always_gets_less_than_what_was_refused(overflow: Overflow, sent: Sent, policy: Policy):
    lesson = draw_lesson(overflow, policy, sent)
    if lesson is not None:
        assert lesson.apply(policy).limit_tokens(sent.max_tokens) < sent.prompt_tokens
        assert lesson.window_tokens is None or lesson.window_tokens >= 256
        assert lesson.ratio is None or policy.token_ratio < lesson.ratio <= 6.0


@pytest.mark.parametrize(("tokens", "ceiling_tokens"), [(127_000, 119_808), (110_000, 82_500 // 8192 * 8192)])
def test_a_prompt_that_was_let_go_beyond_its_limit_keeps_to_it_now(tokens: int, ceiling_tokens: int):
    """By our count it fit the window, and the refusal contradicts that. The second attempt must keep to the limit."""
    lesson = draw_lesson(_refuse(limit=128_000), POLICY, Sent(tokens))
    assert (lesson.window_tokens, lesson.ratio) == (128_000, None)
    planned = lesson.apply(POLICY)
    assert planned.spare_tokens() == 0
    assert planned.fitting_tokens() == planned.limit_tokens() <= POLICY.limit_tokens()
    assert lesson.ceiling_tokens is not None
    assert lesson.ceiling_tokens >= ceiling_tokens


def test_a_lesson_changes_what_it_is_about_with_its_source_and_time() -> None:
    lesson = Lesson(8192, 1.5, added_tokens=700, refused_tokens=9000, source="second attempt")
    changes = find_changes(16_384, lesson, Record(1.0, calibrated=True), now=7.0)
    assert changes == {
        "learned_tokens": 8192, "refuted": (16_384,), "window_source": "second attempt", "window_at": 7.0,
        "refused_tokens": 9000, "ratio": 1.5, "ratio_source": "second attempt", "ratio_at": 7.0, "calibrated": False,
        "added_tokens": 700, "measured": (Measured(IS_PLAIN, 1.5, is_settled=False),),
    }  # fmt: skip
    known = Record(1.5, learned_tokens=8192, refuted=(16_384,), added_tokens=700)
    assert find_changes(16_384, lesson, known, now=8.0) == {}


def test_the_refusal_of_a_prompt_in_another_script_hardly_changes_the_count_of_plain_text() -> None:
    """The second attempt is planned by the ratio of the refused prompt; what is kept has it for that script."""
    chars = Chars(0, 22_000)
    lesson = draw_lesson(_refuse(limit=32_768, prompt_tokens=46_000), POLICY, Sent(20_000, chars=chars))
    assert lesson is not None
    assert lesson.apply(POLICY).token_ratio == 2.3
    changes = find_changes(128_000, lesson, Record(1.0), now=7.0)
    assert changes["ratio"] < 1.15
    assert Scale(changes["ratio"], changes["weights"]).predict(20_000, chars) == pytest.approx(46_000, rel=0.01)


@pytest.mark.parametrize("limit", [MIN_LIMIT_TOKENS, MAX_WINDOW_TOKENS])
def test_a_limit_at_a_bound_is_one(limit: int):
    lesson = draw_lesson(_refuse(limit=limit), replace(POLICY, context_window=2 * MAX_WINDOW_TOKENS), Sent(10**8))
    assert (lesson.window_tokens, lesson.is_certain) == (limit, True)
