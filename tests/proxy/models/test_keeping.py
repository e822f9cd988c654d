"""What one process knows of models: for each client, for all clients, and after `trimtab forget`."""

from dataclasses import replace

import pytest
from support.model_learning import NAME, NOW, Clock, Process, Start

from trimtab.proxy.models.calibration import WARM_UP_SAMPLES
from trimtab.proxy.models.discovery import Windows
from trimtab.proxy.models.hypotheses import FIRST_TEST
from trimtab.proxy.models.keeping import REFRESH_SECONDS, _Upstream
from trimtab.proxy.models.lessons import Lesson
from trimtab.proxy.models.records import Record, Records
from trimtab.proxy.store.store import MemoryStore
from trimtab.rules.tokens.families import SAMPLE_TOKENS, SILENT, Reading

MINE, OTHER = replace(NAME, tenant="mine", key_id="one"), replace(NAME, tenant="other", key_id="two")
LESSON = Lesson(window_tokens=8192, ratio=1.5)
BELIEVED = 128_000


async def test_what_a_client_has_met_counts_for_that_client_in_every_process(start: Start) -> None:
    """It counts at once and after a restart, and for no other client."""
    first, second = start(), start()
    await first.look_up(MINE)
    await first.models.learn(MINE, BELIEVED, LESSON)
    for process in (first, second):
        mine, other = await process.look_up(MINE), await process.look_up(OTHER)
        assert (mine.correct(BELIEVED), mine.ratio) == (8192, 1.5)
        assert (other.correct(BELIEVED), other.ratio) == (BELIEVED, 1.0)
        assert process.models.recall(NAME).ratio == 1.0


async def test_what_two_clients_have_met_counts_for_all(start: Start, clock: Clock) -> None:
    """The two have different client keys; it counts in every process that reads the store."""
    process = start()
    third = replace(NAME, tenant="third", key_id="three")
    for name in (MINE, OTHER):
        await process.look_up(name)
        assert (await process.look_up(third)).correct(BELIEVED) == BELIEVED
        await process.models.learn(name, BELIEVED, LESSON)
        await process.settle()
    clock.seconds += REFRESH_SECONDS + 1

    for each in (process, start()):
        known = await each.look_up(third)
        assert (known.correct(BELIEVED), known.ratio) == (8192, 1.0)  # a ratio from a refusal is never claimed


@pytest.mark.parametrize(
    ("key_ids", "lesson"),
    [
        (("", ""), LESSON),
        (("one", "one"), LESSON),
        (("one", "two"), Lesson(8192, is_certain=False, source="second attempt")),
    ],
)
async def test_credentials_or_guesses_alone_count_for_nobody_else(
    start: Start, key_ids: tuple[str, str], lesson: Lesson
) -> None:
    """Anybody can invent credentials if the upstream checks none. Two tenants with one client key are one client."""
    process = start()
    for tenant, key_id in zip(("mine", "other"), key_ids, strict=True):
        name = replace(NAME, tenant=tenant, key_id=key_id)
        await process.look_up(name)
        await process.models.learn(name, BELIEVED, lesson)
        await process.settle()

    assert (await process.look_up(replace(NAME, tenant="third"))).correct(BELIEVED) == BELIEVED


async def test_what_counts_for_all_ends_for_whom_more_is_answered(start: Start) -> None:
    """The longer answer may come before or after the lesson. A client without a longer answer still uses the window."""
    process = start()
    early, late, other = (replace(NAME, tenant=tenant, key_id=tenant) for tenant in ("early", "late", "small"))
    await process.look_up(early)
    process.models.note_answer(early, 20_000)
    for name in (MINE, OTHER):
        await process.look_up(name)
        await process.models.learn(name, BELIEVED, LESSON)
        await process.settle()
    for name, tokens in ((late, 9000), (other, 500)):
        assert (await process.look_up(name)).correct(BELIEVED) == 8192
        process.models.note_answer(name, tokens)
        await process.settle()
    windows = [(await process.look_up(name)).correct(BELIEVED) for name in (early, late, other)]
    assert windows == [BELIEVED, BELIEVED, 8192]
    assert (await start().look_up(late)).correct(BELIEVED) == BELIEVED


async def _learn_guess(process: Process) -> None:
    await process.look_up(MINE)
    guess = Lesson(8192, is_certain=False, refused_tokens=12_000, source="second attempt")
    await process.models.learn(MINE, BELIEVED, guess)


async def test_a_test_that_is_answered_raises_the_window_and_one_that_is_refused_comes_later(start: Start) -> None:
    """An answer to a prompt longer than the refused one ends the lesson. All of this outlives the process."""
    process = start()
    await _learn_guess(process)
    assert [process.models.take_test(MINE) for _ in range(FIRST_TEST)] == [False] * (FIRST_TEST - 1) + [True]
    assert process.models.may_test_ratio(MINE)
    process.models.fail_test(MINE)
    await process.settle()
    assert not process.models.may_test_ratio(MINE)
    later = [process.models.take_test(MINE) for _ in range(2 * FIRST_TEST)]
    assert later == [False] * (2 * FIRST_TEST - 1) + [True]
    for answered, window in ((8000, 8192), (9000, 9000), (13_000, BELIEVED)):
        process.models.note_answer(MINE, answered)
        await process.settle()
        for each in (process, start()):
            assert (await each.look_up(MINE)).correct(BELIEVED) == window


async def test_what_is_forgotten_counts_for_nobody(start: Start, clock: Clock) -> None:
    """A running process notices at its next read of the store. What is learned later counts again."""
    store = MemoryStore()
    process = start(store)
    for name in (MINE, OTHER):
        await process.look_up(name)
        await process.models.learn(name, BELIEVED, LESSON)
        await process.settle()
    await Records(store).forget(MINE, Record(1.0))
    for _ in range(3):
        clock.seconds += REFRESH_SECONDS + 1
        for each in (process, start(store)):
            for name in (MINE, OTHER, NAME):
                known = await each.look_up(name)
                assert (known.correct(BELIEVED), known.ratio) == (BELIEVED, 1.0)

    await process.models.learn(MINE, BELIEVED, Lesson(4096))
    clock.seconds += REFRESH_SECONDS + 1
    assert (await process.look_up(MINE)).correct(BELIEVED) == 4096
    assert (await start(store).look_up(MINE)).correct(BELIEVED) == 4096


async def test_a_lesson_has_a_time_and_a_source(start: Start) -> None:
    """Pages show them to explain a window."""
    process = start()
    await process.look_up(MINE)
    await process.models.learn(MINE, BELIEVED, LESSON)
    learned = [item for one in process.models.list_known() for item in one.learned]

    assert [item.describe(NOW + 7) for item in learned] == [
        {"window_tokens": 8192, "source": "refused prompt", "age_seconds": 7, "counts_for": "one client"},
        {"token_ratio": 1.5, "source": "refused prompt", "age_seconds": 7, "counts_for": "one client"},
    ]


def _say(process: Process, reading: Reading) -> None:
    """The upstream of a process says how it reads prompts."""
    told = Windows({NAME.model: 8192}, None, reading=reading)
    process.models._told._upstreams[NAME.base_url] = _Upstream(told, has_told=True)


TWICE = Reading(samples=tuple(2 * tokens for tokens in SAMPLE_TOKENS["o200k_base"]), priming=4, frame=8.0)


async def test_what_a_server_counts_itself_is_the_first_ratio_in_every_process(start: Start, clock: Clock) -> None:
    """It is no lesson, so no request tests it. A process whose server is silent reads it in the store."""
    first, second = start(), start()
    _say(first, TWICE)
    for process in (first, second):
        known = await process.look_up(MINE)
        assert (known.ratio, known.reading, known.has_ratio) == (2.0, TWICE, False)


async def test_a_ratio_that_was_learned_by_another_count_ends_with_it(start: Start, clock: Clock) -> None:
    """Later answers correct the server's own count, and nothing changes while the server says the same."""
    process = start()
    await process.look_up(MINE)
    assert await process.feed([1.4] * WARM_UP_SAMPLES, MINE) == 1.4
    _say(process, TWICE)
    for expected in (2.0, 2.2):
        clock.seconds += REFRESH_SECONDS + 1
        assert (await process.look_up(MINE)).ratio == expected
        assert await process.feed([2.2] * WARM_UP_SAMPLES, MINE) == 2.2
    _say(process, SILENT)
    clock.seconds += REFRESH_SECONDS + 1
    assert (await process.look_up(MINE)).reading == TWICE
