"""What one process knows of models: for each client, for all clients, and after `trimtab forget`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model_learning import NAME, NOW, Clock, Process, Start

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models.calibration import WARM_UP_SAMPLES, Calibration
from trimtab.proxy.models.discovery import Windows
from trimtab.proxy.models.hypotheses import FIRST_TEST
from trimtab.proxy.models.keeping import (
    FIRST_RETRY_SECONDS,
    MAX_ASKING,
    REDISCOVER_SECONDS,
    REFRESH_SECONDS,
    Model,
    Told,
    _Upstream,
)
from trimtab.proxy.models.lessons import Lesson, find_changes
from trimtab.proxy.models.records import ModelName, Record, Records
from trimtab.proxy.store.store import MemoryStore
from trimtab.rules.tokens.families import SAMPLE_TOKENS, SILENT, Reading

MINE, OTHER = replace(NAME, tenant="mine", key_id="one"), replace(NAME, tenant="other", key_id="two")
LESSON = Lesson(window_tokens=8192, ratio=1.5)
BELIEVED = 128_000


async def test_what_a_client_has_met_counts_for_that_client_and_what_two_have_for_all(
    start: Start, clock: Clock
) -> None:
    """The two have different client keys. It counts in every process, at once and after a restart."""
    first, second = start(), start()
    third = replace(NAME, tenant="third", key_id="three")
    await first.look_up(MINE)
    await first.models.learn(MINE, BELIEVED, LESSON)
    for process in (first, second):
        mine, other = await process.look_up(MINE), await process.look_up(OTHER)
        assert (mine.correct(BELIEVED), mine.ratio) == (8192, 1.5)
        assert (other.correct(BELIEVED), other.ratio) == (BELIEVED, 1.0)
        assert process.models.recall(NAME).ratio == 1.0
    await first.models.learn(OTHER, BELIEVED, LESSON)
    await first.settle()
    clock.seconds += REFRESH_SECONDS + 1
    for process in (first, start()):
        known = await process.look_up(third)
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


# When an upstream is asked for its windows.


UPSTREAM = UpstreamConfig(base_url=NAME.base_url)
NOTHING = Windows({}, None)


@pytest.fixture
async def told(clock: Clock):
    client = UpstreamClient()
    yield Told(client, clock)
    await client.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Windows]:
    """The upstream's answers, in order; no windows after the last one."""
    answers: list[Windows] = []

    async def discover(*_: object) -> Windows:
        return answers.pop(0) if answers else NOTHING

    monkeypatch.setattr("trimtab.proxy.models.keeping.discover", discover)
    return answers


CREDENTIAL = [("Authorization", "Bearer 1")]


async def test_pauses_grow_while_nothing_is_told(told: Told, clock: Clock, answers: list[Windows]) -> None:
    """The upstream may still be starting, or may never report a window."""
    pauses = []
    for _ in range(9):
        began = clock.seconds
        while not told.take_turn(UPSTREAM, ""):
            clock.seconds += FIRST_RETRY_SECONDS / 2
        await told.ask(UPSTREAM, [], "")
        pauses.append(clock.seconds - began)

    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert FIRST_RETRY_SECONDS < pauses[1] <= 2.5 * FIRST_RETRY_SECONDS
    assert REDISCOVER_SECONDS < pauses[-1] <= REDISCOVER_SECONDS + FIRST_RETRY_SECONDS


async def test_an_upstream_that_never_tells_is_asked_for_ever(told: Told, clock: Clock, answers: list[Windows]) -> None:
    """Many do not tell: in a week they are asked a thousand times."""
    for _ in range(1_100):
        assert told.take_turn(UPSTREAM, "")
        await told.ask(UPSTREAM, [], "")
        assert not told.take_turn(UPSTREAM, "")
        clock.seconds += REDISCOVER_SECONDS + 1


async def test_what_was_told_stays_if_nothing_is_told_later(told: Told, clock: Clock, answers: list[Windows]) -> None:
    answers.append(Windows({NAME.model: 8192}, None))
    for _ in range(2):
        assert told.take_turn(UPSTREAM, "")
        await told.ask(UPSTREAM, [], "")
        clock.seconds += REDISCOVER_SECONDS + 1

    assert told.find(NAME) == (8192, SILENT)
    assert told.list_models() == [(NAME.base_url, NAME.model)]


async def test_a_client_has_a_turn_of_its_own_while_nothing_is_told_to_anybody(
    told: Told, clock: Clock, answers: list[Windows]
) -> None:
    """The first turn is at once, later ones have the same pauses: one credential may succeed where others failed."""
    assert told.take_turn(UPSTREAM, "")
    await told.ask(UPSTREAM, [], "")
    for tenant in ("one", "two"):
        assert told.take_turn(UPSTREAM, tenant)
        await told.ask(UPSTREAM, CREDENTIAL, tenant)
        assert not told.take_turn(UPSTREAM, tenant)
    clock.seconds += FIRST_RETRY_SECONDS * 3
    answers.append(Windows({NAME.model: 8192}, None))
    assert told.take_turn(UPSTREAM, "")
    await told.ask(UPSTREAM, [], "")

    assert not told.take_turn(UPSTREAM, "three")


async def test_what_one_client_is_told_counts_for_that_client(told: Told, answers: list[Windows]) -> None:
    mine, other = replace(NAME, tenant="mine"), replace(NAME, tenant="other")
    answers += [NOTHING, Windows({NAME.model: 4096}, None), Windows({NAME.model: 2048}, None)]
    for tenant in ("", "mine", "other"):
        assert told.take_turn(UPSTREAM, tenant)
        await told.ask(UPSTREAM, CREDENTIAL, tenant)

    found = [told.find(name) for name in (mine, other, NAME)]
    assert found == [(4096, SILENT), (2048, SILENT), (None, SILENT)]
    assert told.list_models() == []


async def test_so_many_clients_ask_at_a_time_and_no_more(told: Told, clock: Clock, answers: list[Windows]) -> None:
    """Anybody can invent credentials. A client above the bound gets a turn later."""
    told.take_turn(UPSTREAM, "")
    await told.ask(UPSTREAM, [], "")
    begun = [number for number in range(3 * MAX_ASKING) if told.take_turn(UPSTREAM, str(number))]
    assert len(begun) == MAX_ASKING
    for number in begun:
        await told.ask(UPSTREAM, CREDENTIAL, str(number))

    assert told.take_turn(UPSTREAM, str(3 * MAX_ASKING))


# The states of one model: what may reach other processes, and what stays in this one.


BELIEVED_TOKENS = 128_000
MODEL = ModelName("http://upstream", "m", "auto")


def _teach(model: Model, lesson: Lesson = LESSON) -> None:
    model.teach(find_changes(BELIEVED_TOKENS, lesson, model.known, now=1.0))


@given(st.lists(st.booleans()))
def test_what_was_taught_waits_to_be_written_until_a_record_is_gone_by(lessons: list[bool]) -> None:
    model = Model(MODEL, Record(1.0))
    for generation, is_lesson in enumerate(lessons, start=1):
        if is_lesson:
            _teach(model, Lesson(window_tokens=8192 + generation))
        else:
            model.adopt(generation, Record(1.0))
        assert (model.is_taught, model.is_vouched) == (is_lesson, False)


def test_a_lesson_is_learned_once() -> None:
    model = Model(MODEL, Record(1.0, calibrated=True))
    _teach(model)
    assert (model.known.learned_tokens, model.known.ratio, model.known.calibrated) == (8192, 1.5, False)
    model.adopt(1, model.known)
    _teach(model)

    assert not model.is_taught


def test_what_is_forgotten_leaves_no_trace() -> None:
    """Neither a lesson that waits to be written, nor samples, nor requests that count towards a test."""
    model = Model(MODEL, Record(1.0))
    _teach(model)
    model.cut_requests = 1
    model.calibration = None
    model.forget(Record(1.2))

    assert (model.known, model.is_taught, model.cut_requests) == (Record(1.2), False, 0)
    assert isinstance(model.calibration, Calibration)


@pytest.mark.parametrize(
    ("generation", "ratio", "is_taught", "adopts"),
    [
        (1, 1.0, False, False),
        (1, 1.3, False, True),
        (1, 1.3, True, False),
        (2, 1.0, True, True),
        (0, 1.0, False, False),
    ],
)
def test_a_newer_record_is_adopted_and_another_one_unless_a_lesson_is_fresher(
    generation, ratio, is_taught, adopts
) -> None:
    model = Model(MODEL, Record(1.0), generation=1)
    if is_taught:
        _teach(model, Lesson(added_tokens=500))

    assert model.adopts(generation, Record(ratio)) is adopts


def test_adopting_tells_what_changed_and_keeps_a_window_that_a_record_lacks() -> None:
    model = Model(MODEL, Record(1.0, 8192))
    assert model.adopt(1, Record(1.3, learned_tokens=4096)) == [
        ("calibration", 1.0, 1.3),
        ("window", None, 4096),
    ]
    assert (model.known.window_tokens, model.generation) == (8192, 1)
    assert model.adopt(2, Record(1.3, learned_tokens=4096)) == []
