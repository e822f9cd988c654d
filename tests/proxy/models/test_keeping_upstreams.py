"""When an upstream is asked for its windows."""

from dataclasses import replace

import pytest
from support.model_learning import NAME, Clock

from trimtab.proxy.config.schema import UpstreamConfig
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.models.discovery import Windows
from trimtab.proxy.models.keeping import FIRST_RETRY_SECONDS, MAX_ASKING, REDISCOVER_SECONDS, Told
from trimtab.rules.tokens.families import SILENT

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
    """Another client may have other models under the same names."""
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
