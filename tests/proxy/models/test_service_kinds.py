"""Ratios by kinds of text: what a model's answers in one language show changes nothing for another."""

import pytest
from support.model_learning import NAME, TOKENS, Clock, Process, Start

from trimtab.proxy.models.calibration import KEPT_SAMPLES, WARM_UP_SAMPLES
from trimtab.proxy.models.keeping import REFRESH_SECONDS
from trimtab.proxy.models.records import find_scale
from trimtab.rules.tokens.scripts import Chars, Scale

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
    """Also those that came first."""
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
    """Eight answers in all are enough if both have three."""
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


async def test_few_odd_answers_of_one_kind_change_nothing(start: Start) -> None:
    """Not before that kind has eight answers, and then the median decides; other kinds never move."""
    process = start()
    await process.look_up()
    await learn(process, ENGLISH)
    before = scale_of(process)
    await process.feed([2.3, 2.3, 6.0, 2.3, 0.6, 19.0, 2.3], chars=CHINESE)
    assert scale_of(process).predict(1, ENGLISH) == before.predict(1, ENGLISH)
    await process.feed([2.3], chars=CHINESE)
    assert abs(off(process, CHINESE)) < 0.01
    assert scale_of(process).ratio == before.ratio


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
    """The store has all figures, and what they were found from."""
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
