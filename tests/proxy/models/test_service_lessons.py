"""What is learned of a model from refusals, and from prompts that were silently cut short."""

import asyncio
from dataclasses import replace

import pytest
from support.model_learning import LIMIT, NAME, Process, Start

from trimtab.proxy.models.calibration import Report
from trimtab.proxy.models.lessons import Lesson
from trimtab.proxy.models.records import Records
from trimtab.proxy.store.store import MemoryStore


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
    """The next request must not be refused again."""

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
