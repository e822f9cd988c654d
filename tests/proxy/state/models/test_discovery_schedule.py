"""When an upstream is asked for its windows."""

import pytest
from support.model_learning import NAME, Clock

from proxy.config.schema import UpstreamConfig
from proxy.http.client import UpstreamClient
from proxy.state.models.discovery import Windows
from proxy.state.models.discovery_schedule import FIRST_RETRY_SECONDS, MAX_TRIED, REDISCOVER_SECONDS, Told

UPSTREAM = UpstreamConfig(base_url=NAME.base_url)
NOTHING = Windows({}, None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def told(clock: Clock):
    client = UpstreamClient()
    yield Told(client, clock)
    await client.close()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Windows]:
    """What the upstream tells, one answer after the other; nothing when they have run out."""
    answers: list[Windows] = []

    async def discover(*_: object) -> Windows:
        return answers.pop(0) if answers else NOTHING

    monkeypatch.setattr("proxy.state.models.discovery_schedule.discover", discover)
    return answers


def _credential(number: int) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {number}")]


async def test_pauses_grow_while_nothing_is_told(told: Told, clock: Clock, answers: list[Windows]) -> None:
    """It may be starting still, or tell nothing ever."""
    pauses = []
    for _ in range(9):
        began = clock.seconds
        while not told.take_turn(UPSTREAM, []):
            clock.seconds += FIRST_RETRY_SECONDS / 2
        await told.ask(UPSTREAM, [])
        pauses.append(clock.seconds - began)

    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert FIRST_RETRY_SECONDS < pauses[1] <= 2.5 * FIRST_RETRY_SECONDS
    assert REDISCOVER_SECONDS < pauses[-1] <= REDISCOVER_SECONDS + FIRST_RETRY_SECONDS


async def test_nobody_takes_a_turn_that_another_has(told: Told) -> None:
    assert told.take_turn(UPSTREAM, [])
    assert not told.take_turn(UPSTREAM, _credential(1))


async def test_what_was_told_stays_if_nothing_is_told_later(told: Told, clock: Clock, answers: list[Windows]) -> None:
    answers.append(Windows({NAME.model: 8192}, None))
    for _ in range(2):
        assert told.take_turn(UPSTREAM, [])
        await told.ask(UPSTREAM, [])
        clock.seconds += REDISCOVER_SECONDS + 1

    assert told.find(NAME) == 8192
    assert told.list_models() == [(NAME.base_url, NAME.model)]


async def test_so_many_credentials_are_tried_and_no_more(told: Told, answers: list[Windows]) -> None:
    """Each once, at once: one of them may open what others did not. Their number is bounded."""
    tried = 0
    for number in range(3 * MAX_TRIED):
        if told.take_turn(UPSTREAM, _credential(number // 2)):
            await told.ask(UPSTREAM, _credential(number // 2))
            tried += 1

    assert tried == MAX_TRIED
