"""The ratio of a model is learned from the upstream's usage reports."""

import asyncio
from dataclasses import replace

import pytest
from support.model_learning import LIMIT, NAME, TOKENS, Clock, Process, Start, report

from trimtab.proxy.models.calibration import KEPT_SAMPLES, MIN_SAMPLE_TOKENS, WARM_UP_SAMPLES, Report
from trimtab.proxy.models.keeping import REFRESH_SECONDS
from trimtab.proxy.models.lessons import Lesson
from trimtab.proxy.models.records import Facts, Records, find_scale
from trimtab.proxy.store.store import MemoryStore
from trimtab.rules.tokens.scripts import Chars, Scale


@pytest.mark.parametrize(
    ("model", "ratio"),
    [("gpt-4o", 1.0), ("unheard-of", 1.0), ("openai/claude-3-opus", 1.2), ("claude-opus-4-7", 1.5), ("qwen3", 0.9928)],
)
async def test_a_model_begins_with_its_familys_ratio(start: Start, model: str, ratio: float) -> None:
    """Before the first report, also a model that was never looked up has it."""
    process, name = start(), replace(NAME, model=model)

    assert process.models.recall(name) == Facts(ratio)
    assert await process.look_up(name) == Facts(ratio)


@pytest.mark.parametrize(
    ("reported", "ratio", "changes"),
    [
        ([1.3] * 7, 1.0, 0),
        ([1.3] * 8, 1.3, 1),
        ([1.0, 1.1, 1.2, 1.3, 1.3, 1.4, 1.5, 9.0], 1.3, 1),
        ([1.015] * 8, 1.0, 0),
        ([0.985] * 8, 1.0, 0),
        ([1.03] * 8, 1.03, 1),
        ([0.5] * 8, 0.5, 1),
        ([0.49] * 20, 1.0, 0),
        ([1.6], 1.6, 1),
        ([1.6, 1.9], 1.6, 1),
        ([1.5, 1.5], 1.0, 0),
        ([1.4, 1.6, 1.0], 1.0, 0),
        ([1.6, 1.6] + [1.2] * 6, 1.2, 2),
        ([12.0, 12.0], 6.0, 1),
        ([20.5] * 20, 1.0, 0),
        ([1.3] * 4 + [25.0] * 4 + [1.3] * 3, 1.0, 0),
    ],
)
async def test_the_warm_up_goes_by_the_median_of_eight(
    start: Start, reported: list[float], ratio: float, changes: int
) -> None:
    """A far higher report changes the ratio at once. A median that is close, or impossible reports, change nothing."""
    process = start()
    await process.look_up()

    assert await process.feed(reported) == pytest.approx(ratio, abs=1e-4)
    assert process.changes.get("calibration", 0) == changes


@pytest.mark.parametrize(
    ("tokens", "times", "ratio"),
    [(MIN_SAMPLE_TOKENS - 1, 2, 1.0), (MIN_SAMPLE_TOKENS, 2, 2.0), (600, 6, 1.0)],
)
async def test_small_requests_teach_little(start: Start, tokens: int, times: int, ratio: float) -> None:
    """In a small request, the frame of the messages weighs too much. A server may add a preamble of its own."""
    process = start()
    await process.look_up()
    for _ in range(2 if times == 6 else WARM_UP_SAMPLES):
        process.models.observe(NAME, report(tokens, times * tokens))

    await process.settle()
    assert process.models.recall(NAME).ratio == ratio


async def test_odd_figures_and_unknown_models_do_no_harm(start: Start) -> None:
    """For example: an empty report, an empty request, a model that was never looked up."""
    process = start()
    await process.feed([1.3] * WARM_UP_SAMPLES)
    await process.look_up()
    for estimated, reported in ((0, 5), (TOKENS, 0), (TOKENS, 10**9)):
        process.models.observe(NAME, report(estimated, reported))

    assert await process.feed([1.3] * (WARM_UP_SAMPLES - 1)) == 1.0
    assert process.changes == {}


async def test_a_change_is_logged_without_a_name_that_nobody_vouched_for(start: Start) -> None:
    """The log and the metric contain the label instead of the name."""
    process = start()
    await process.look_up(label="glob-*")
    await process.feed([1.3] * WARM_UP_SAMPLES)

    (line,) = process.log.lines
    known = {"event": "policy_changed", "model": "glob-*", "cause": "calibration", "before": 1.0, "after": 1.3}
    assert line == known
    assert NAME.model.encode() not in process.metrics.render()
    assert b'trimtab_policy_changes_total{cause="calibration",model="glob-*"} 1.0' in process.metrics.render()


@pytest.mark.parametrize(
    ("reported", "ratio"),
    [
        ([1.44] * (KEPT_SAMPLES - 1), 1.3),
        ([1.44] * KEPT_SAMPLES, 1.44),
        ([5.0, 0.5] * KEPT_SAMPLES, (5.0 + 0.5) / 2),
        ([1.3] * KEPT_SAMPLES + [1.5] * (KEPT_SAMPLES // 2 - 1), 1.3),
        ([1.3] * KEPT_SAMPLES + [1.5] * (KEPT_SAMPLES // 2 + 1), 1.5),
    ],
)
async def test_what_was_found_is_kept_until_the_median_of_many_is_far_off(
    start: Start, reported: list[float], ratio: float
) -> None:
    """The median of the last 64 must differ by 10 %: a change may move a cut, so it must be rare."""
    process = start()
    await process.look_up()
    await process.feed([1.3] * WARM_UP_SAMPLES)

    assert await process.feed(reported) == pytest.approx(ratio, abs=1e-4)
    assert process.changes == {"calibration": 1 + (ratio != 1.3)}


async def test_a_model_that_was_near_from_the_start_counts_as_calibrated(start: Start) -> None:
    """So no other process warms up again, and eight reports that are slightly off change nothing."""
    first = start()
    await first.look_up()
    await first.feed([1.01] * WARM_UP_SAMPLES)
    second = start()
    await second.look_up()

    assert await second.feed([1.09] * (2 * WARM_UP_SAMPLES)) == 1.0
    assert await first.feed([1.09] * (2 * WARM_UP_SAMPLES)) == 1.0
    assert (first.changes, second.changes) == ({}, {})


async def test_counts_that_stay_wrong_are_warned_of_once(start: Start) -> None:
    """The warning comes only after warm-up, because calibration corrects errors before."""
    process = start()
    await process.look_up(label="glob-*")
    await process.feed([0.7, 1.3] * (WARM_UP_SAMPLES // 2))
    assert process.log.lines == []
    await process.feed([0.7, 1.3] * KEPT_SAMPLES)

    (line,) = process.log.lines
    assert (line["event"], line["model"]) == ("estimates_off", "glob-*")
    assert line["mean_error"] == pytest.approx(0.3, abs=0.05)


async def test_counts_that_calibration_puts_right_are_not_warned_of(start: Start) -> None:
    """Neither a large error before calibration nor a single odd report causes a warning."""
    process = start()
    await process.look_up()
    await process.feed([4.0] * 20 + [8.0] + [4.1, 3.9] * 20)

    assert [line["event"] for line in process.log.lines] == ["policy_changed"]


# Ratios by kinds of text: what a model's answers in one language show changes nothing for another.


ENGLISH, CHINESE, RUSSIAN = Chars(0.04), Chars(0.09, 1.1), Chars(0.0, 0.0, 3.5)
LOG = Chars(0.6)
TRUE = {ENGLISH: 1.11, LOG: 1.4, CHINESE: 2.3, RUSSIAN: 2.7}
"""The model's tokens for one of ours."""


def scale_of(process: Process) -> Scale:
    return find_scale(NAME, process.models.recall(NAME))


def off(process: Process, chars: Chars) -> float:
    """How far the count of a text is off, as a share."""
    return scale_of(process).predict(1, chars) / TRUE[chars] - 1


async def learn(process: Process, *spoken: Chars, answers: int = WARM_UP_SAMPLES) -> None:
    for chars in spoken:
        await process.feed([TRUE[chars]] * answers, chars=chars)


@pytest.mark.parametrize(
    "order",
    [(ENGLISH, CHINESE), (CHINESE, ENGLISH), (LOG, ENGLISH, CHINESE), (RUSSIAN, CHINESE, ENGLISH), (ENGLISH, LOG)],
)
async def test_after_eight_answers_in_each_language_all_are_near(start: Start, order: tuple[Chars, ...]) -> None:
    process = start()
    await process.look_up()
    for number, chars in enumerate(order):
        await learn(process, chars)
        for known in order[: number + 1]:
            assert abs(off(process, known)) < 0.01


async def test_after_english_what_chinese_shows_leaves_the_ratio_alone(start: Start) -> None:
    """So no cut in an English chat moves. Each language is one change of the policy."""
    process = start()
    await process.look_up()
    await learn(process, ENGLISH)
    ratio = process.models.recall(NAME).ratio
    await learn(process, CHINESE, answers=4 * WARM_UP_SAMPLES)
    await learn(process, ENGLISH, CHINESE, answers=2 * KEPT_SAMPLES)
    assert process.models.recall(NAME).ratio == ratio
    assert process.changes == {"calibration": 2}


async def test_a_chat_in_two_languages_settles_both(start: Start) -> None:
    process = start()
    await process.look_up()
    for chars in (ENGLISH, CHINESE, CHINESE) * 2 + (ENGLISH, CHINESE):
        await learn(process, chars, answers=1)
    assert max(abs(off(process, chars)) for chars in (ENGLISH, CHINESE)) < 0.01


async def test_a_server_that_counts_bytes_does_so_in_every_script(start: Start) -> None:
    """Whatever the first language was, what plain text shows counts for the kinds that nothing is known of."""
    process = start()
    await process.look_up()
    await process.feed([4.2] * WARM_UP_SAMPLES, chars=ENGLISH)
    assert scale_of(process).predict(1, LOG) == pytest.approx(4.2, rel=0.01)
    assert scale_of(process).predict(1, CHINESE) == pytest.approx(4.2, rel=0.01)


async def test_a_lie_about_one_script_ends_with_64_honest_answers(start: Start) -> None:
    """A wrong weight must not make honest answers look like those of a server that drops prompts."""
    process = start()
    await process.look_up()
    await process.feed([5.9] * WARM_UP_SAMPLES, chars=CHINESE)
    assert off(process, CHINESE) > 1
    await learn(process, CHINESE, answers=KEPT_SAMPLES)
    assert abs(off(process, CHINESE)) < 0.01


async def test_a_nearly_full_prompt_in_another_script_counts_at_once(start: Start) -> None:
    process = start()
    await process.look_up()
    assert TOKENS * TRUE[CHINESE] > 10_000
    await learn(process, CHINESE, answers=1)
    assert abs(off(process, CHINESE)) < 0.01
    assert abs(off(process, ENGLISH)) < 0.1


async def test_another_process_counts_alike(start: Start, clock: Clock) -> None:
    first = start()
    await first.look_up()
    await learn(first, ENGLISH, CHINESE)
    second = start()
    await second.look_up()
    assert scale_of(second) == scale_of(first)
    await learn(second, RUSSIAN)
    clock.seconds += REFRESH_SECONDS + 1
    await first.look_up()
    assert scale_of(first) == scale_of(second)
    assert max(abs(off(first, chars)) for chars in (ENGLISH, CHINESE, RUSSIAN)) < 0.01


# What is learned of a model from refusals, and from prompts that were silently cut short.


async def _feed_cut(process: Process, window: int, *, cached: int = 0, same: bool = False) -> int | None:
    """Send growing prompts, of which the upstream drops the oldest messages. Returns the learned window."""
    process.models.note_answer(NAME, 0)
    for tokens in range(1000, 30_000, 700):
        reported = min(tokens, window - (0 if same else tokens % 300))
        process.models.observe(NAME, Report(tokens, reported, LIMIT, 128_000, cached))
        await process.settle()
    return process.models.recall(NAME).learned_tokens


@pytest.mark.parametrize("same", [False, True])
async def test_an_upstream_that_cuts_prompts_short_is_found_out(start, same) -> None:
    """The window is learned, the answers are counted, and one warning is logged."""
    process = start()
    await process.look_up()
    assert await _feed_cut(process, 8192, same=same) == 8192
    assert [line["event"] for line in process.log.lines].count("prompts_cut_short") == 1
    samples = process.metrics.silent_truncations.read().samples
    assert sum(one.value for one in samples if one.name.endswith("_total")) >= 4


async def test_other_short_reports_are_no_cut(start) -> None:
    """Some servers report only the tokens that were not cached, and some do not count."""
    for window, others in ((4096, {"cached": 3000}), (1000, {"same": True})):
        process = start()
        await process.look_up()
        assert await _feed_cut(process, window, **others) is None


async def test_a_refusals_window_holds_for_what_it_refuted_only(start) -> None:
    """Another window, configured later, is tried. The lesson outlives the process."""
    process = start()
    await process.look_up()
    await process.models.learn(NAME, 128_000, Lesson(window_tokens=8192, ratio=1.5))
    for one in (process, start()):
        facts = await one.look_up()
        assert (facts.correct(128_000), facts.correct(32_000), facts.ratio) == (8192, 32_000, 1.5)
    await process.models.learn(NAME, 32_000, Lesson(window_tokens=4096))
    facts = await process.look_up()
    assert (facts.correct(128_000), facts.correct(32_000)) == (4096, 4096)
    await process.models.learn(NAME, 128_000, Lesson(window_tokens=16_000))
    assert (await process.look_up()).correct(128_000) == 16_000


async def test_lessons_at_the_same_time_are_all_learned(start) -> None:
    """Requests planned with three windows are refused at the same time, in two processes."""
    one, two = start(), start()
    await one.look_up()
    await two.look_up()
    lesson = Lesson(window_tokens=8192)
    await asyncio.gather(
        one.models.learn(NAME, 128_000, lesson),
        one.models.learn(NAME, 64_000, lesson),
        two.models.learn(NAME, 32_000, lesson),
    )
    third = await start().look_up()
    assert {third.correct(window) for window in (128_000, 64_000, 32_000)} == {8192}


async def test_a_store_that_hangs_does_not_make_a_lesson_forgotten(start) -> None:
    class Hanging(MemoryStore):
        async def put(self, *_: object) -> bytes | None:
            await asyncio.Event().wait()
            return None

    process = start(Hanging())
    process.models.read_seconds = 0.01
    await process.models.look_up(NAME, "other")
    await process.models.learn(NAME, 128_000, Lesson(window_tokens=8192))
    assert process.models.recall(NAME).correct(128_000) == 8192


async def test_a_guess_below_what_was_answered_becomes_that(start) -> None:
    """A longer prompt was refused, a shorter one answered. A refusal below the answered size teaches nothing."""
    process = start()
    await process.look_up()
    process.models.observe(NAME, Report(7859, 7859, LIMIT, 128_000))
    guess = Lesson(window_tokens=7168, is_certain=False)
    await process.models.learn(NAME, 128_000, replace(guess, refused_tokens=5000))
    assert process.models.recall(NAME).learned_tokens is None
    await process.models.learn(NAME, 128_000, replace(guess, refused_tokens=8617))
    assert process.models.recall(NAME).learned_tokens == 7859


async def test_what_was_refused_is_counted_anew_by_a_ratio_that_answers_tell(start: Start) -> None:
    """Otherwise a prompt shorter than the refused one would look longer."""
    store = MemoryStore()
    process = start(store)
    await process.look_up()
    guess = Lesson(window_tokens=20_000, is_certain=False, refused_tokens=30_000)
    await process.models.learn(NAME, 128_000, guess)
    assert await process.feed([2.0] * 20) == pytest.approx(2.0)
    _, written = await Records(store).read(NAME)
    assert written.refused_tokens == 60_000


@pytest.mark.parametrize("lesson", [Lesson(window_tokens=4096), Lesson(ratio=3.0), Lesson(added_tokens=500)])
async def test_what_a_stranger_was_taught_is_kept_once_its_upstream_has_answered(start, lesson) -> None:
    """It does not matter whether other processes knew the model before."""
    one = start()
    await one.look_up()
    await one.models.learn(NAME, 128_000, Lesson(window_tokens=8192))
    two = start()
    await two.models.look_up(NAME, "other")
    await two.models.learn(NAME, 128_000, lesson)
    two.models.note_answer(NAME, 0)
    await two.settle()
    known, other = two.models.recall(NAME), await start().look_up()
    assert (known.learned_tokens, known.ratio, known.added_tokens) == (
        other.learned_tokens,
        other.ratio,
        other.added_tokens,
    )
    assert (lesson.window_tokens or 8192, lesson.ratio or 1.0) == (other.learned_tokens, other.ratio)
