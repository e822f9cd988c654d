"""The chain of records of a model in the store, which several proxies read and extend."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.proxy.models.records import (
    ANY_RATIO,
    MAX_RATIO,
    Claim,
    Facts,
    ModelName,
    Record,
    Records,
    _decode,
    complete,
    expect_scale,
    find_scale,
    recall,
    take_measured,
)
from trimtab.proxy.store.store import MemoryStore
from trimtab.rules.tokens.families import SILENT
from trimtab.rules.tokens.scripts import EVEN, IS_PLAIN, Chars, Measured, Scale

NAME = ModelName("http://up/v1", "m", "o200k_base")
FIRST, SECOND, THIRD = (Record(ratio) for ratio in (1.0, 1.5, 2.0))


class WatchedStore(MemoryStore):
    """A store that keeps `others` instead of the first writes, and notes all writes."""

    def __init__(self, *others: bytes) -> None:
        super().__init__()
        self.others = list(others)
        self.written: list[tuple[str, bytes]] = []

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        """Keep the next of `others` instead, if any is left."""
        self.written.append((summary_id, sealed))
        return await super().put(summary_id, self.others.pop(0) if self.others else sealed, lease)


async def test_the_last_record_counts_and_the_first_of_those_that_write_at_once() -> None:
    records = Records(MemoryStore())
    assert await records.read(NAME) == (0, None)
    assert await records.append(NAME, 0, FIRST) == (1, FIRST)
    assert await records.append(NAME, 1, SECOND) == (2, SECOND)
    assert await records.read(NAME) == (2, SECOND)

    store = MemoryStore()
    found = await asyncio.gather(*(Records(store).append(NAME, 0, record) for record in (FIRST, SECOND, THIRD)))
    assert len(set(found)) == 1
    assert await Records(store).read(NAME) == found[0]


async def test_an_older_versions_ratio_counts_alone_until_answers_say_more() -> None:
    """It was found from texts of all kinds: with the family's weights beside it, these would count twice."""
    name, records = ModelName("http://up/v1", "llama-2-70b-chat", "auto"), Records(MemoryStore())
    assert expect_scale(name, SILENT).weights != EVEN
    for generation, measured in enumerate([(), (Measured(IS_PLAIN, 1.8),)]):
        record = Record(1.8, calibrated=True, ratio_source="answers", measured=measured)
        _, known = await records.append(name, generation, record)
        _, known = await records.read(name)
        assert known is not None
        assert find_scale(name, known) == Scale(1.8, expect_scale(name, SILENT).weights if measured else EVEN)


@pytest.mark.parametrize(
    "other",
    [
        ModelName("http://other/v1", "m", "o200k_base"),
        ModelName("http://up/v1", "M", "o200k_base"),
        ModelName("http://up/v1", "m", "cl100k_base"),
    ],
)
async def test_each_model_has_a_chain_of_its_own(other: ModelName) -> None:
    records = Records(MemoryStore())
    await records.append(NAME, 0, FIRST)
    assert await records.read(other) == (0, None)


async def test_a_record_keeps_its_place_in_the_store() -> None:
    """Else an update would forget what was learned. Change the two only together with what reads old records."""
    store = WatchedStore()
    await Records(store).append(ModelName("http://up/v1", "m", "o200k_base", tenant="t"), 2, Record(1.5))
    ((place, kept),) = store.written
    assert place == "model-4cfca850400f5d222acf0142cade0d6d7e4bf16a3ba3a23334d47919e713a4d4-3"
    older = (
        b'{"ratio":1.5,"window_tokens":null,"calibrated":false,"learned_tokens":null,"added_tokens":null,"refuted":[],'
        b'"refused_tokens":null,"answered_tokens":0,"failures":0,"window_source":"","window_at":0.0,"ratio_source":"",'
        b'"ratio_at":0.0,"forgotten":0,"reading":[false,[],0,0.0,0,false'
    )
    assert kept == older + b',false],"weights":null,"measured":[],"claims":[]}'
    assert _decode(older + b'],"claims":[]}') == Record(1.5)


def test_a_ratio_that_an_older_version_found_is_that_of_plain_text() -> None:
    assert Record(1.3, calibrated=True).shown == (Measured(IS_PLAIN, 1.3),)
    assert Claim("key", ratio=1.3).shown == (Measured(IS_PLAIN, 1.3),)
    assert Record(1.3).shown == Claim("key").shown == ()


def test_what_is_measured_of_one_kind_leaves_the_others_as_they_are() -> None:
    """The ratio does not move at all, so no cut of a chat in another script does."""
    known = Record(1.1053, calibrated=True)
    found = Measured(2, 2.3, Chars(0.09, 1.1))
    changes = take_measured(Scale(1.1053), known, [found], ANY_RATIO)
    assert changes["ratio"] == 1.1053
    assert Scale(1.1053, changes["weights"]).predict(1, found.chars) == pytest.approx(2.3, rel=0.01)
    assert changes["weights"].code == changes["weights"].other == 0.0
    assert [each.kind for each in changes["measured"]] == [IS_PLAIN, 2]


async def test_a_name_of_half_characters_has_a_chain_like_any_other() -> None:
    records, name = Records(MemoryStore()), ModelName("http://up/v1", "\ud800", "o200k_base")
    await records.append(name, 0, FIRST)
    assert await records.read(name) == (1, FIRST)


@pytest.mark.parametrize(
    "kept",
    [b"", b"{}", b"\xff", b'"ratio"', b'{"ratio":0}', b'{"ratio":99}', b'{"ratio":1,"window_tokens":1}',
     b'{"ratio":1,"added_tokens":-1}', b'{"ratio":1,"refuted":[1,2,3,4,5,6,7,8,9]}'],
)  # fmt: skip
async def test_what_is_no_record_is_passed_over(kept: bytes) -> None:
    """Writers and readers skip it: the store may be damaged, or shared with a later version."""
    store = WatchedStore(kept)
    assert await Records(store).append(NAME, 0, FIRST) == (2, FIRST)
    assert await Records(store).read(NAME) == (2, FIRST)

    behind = WatchedStore()
    await Records(behind).append(NAME, 0, FIRST)
    behind.others.append(kept)
    assert await Records(behind).append(NAME, 1, SECOND) == (3, SECOND)


async def test_an_illegible_end_leaves_the_record_before_it() -> None:
    """The earlier record still counts, and the next record is written after the damaged one."""
    store = WatchedStore()
    await Records(store).append(NAME, 0, FIRST)
    await Records(store).append(NAME, 1, SECOND)
    store.replace(store.written[-1][0], b"damaged")
    assert await Records(store).read(NAME) == (2, FIRST)
    assert await Records(store).append(NAME, 2, THIRD) == (3, THIRD)


@given(
    st.builds(
        Record,
        ratio=st.floats(1 / MAX_RATIO, MAX_RATIO),
        window_tokens=st.none() | st.integers(1024, 10_000_000),
        calibrated=st.booleans(),
        learned_tokens=st.none() | st.integers(1024, 10_000_000),
        added_tokens=st.none() | st.integers(0, 10_000_000),
        refuted=st.lists(st.integers(), max_size=8).map(tuple),
    )
)
async def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    store = MemoryStore()
    await Records(store).append(NAME, 0, record)
    assert await Records(store).read(NAME) == (1, record)


# Which of the known facts requests are planned with.


LEARNED = Facts(1.0, learned_tokens=8192, added_tokens=500, refuted=(32_000, 128_000))


@pytest.mark.parametrize(
    ("window_tokens", "is_configured", "corrected"),
    [(128_000, False, 8192), (128_000, True, 8192), (64_000, False, 64_000), (64_000, True, 64_000)],
)
def test_a_learned_window_stands_for_those_that_it_has_refuted(window_tokens, is_configured, corrected) -> None:
    assert LEARNED.correct(window_tokens, is_configured=is_configured) == corrected


@given(learned=st.integers(1024, 10**6), configured=st.integers(1024, 10**6))
def test_a_window_that_is_configured_is_never_made_larger(learned: int, configured: int) -> None:
    facts = Facts(1.0, learned_tokens=learned, refuted=(configured,))
    assert facts.correct(configured, is_configured=True) == min(learned, configured)
    assert facts.correct(configured) == learned


def test_a_ratio_that_answers_confirm_is_learned_and_not_in_doubt() -> None:
    confirmed = replace(LEARNED, ratio=0.8, has_ratio=True, is_calibrated=True)
    assert (confirmed.forget(1.2).ratio, confirmed.doubt(1.2).ratio) == (1.2, 0.8)
    assert (confirmed.forget(1.2).has_ratio, confirmed.doubt(1.2).has_ratio) == (False, True)
    assert confirmed.doubt(1.2).correct(32_000) == 32_000
    assert replace(confirmed, is_calibrated=False).doubt(1.2) == Facts(1.2)


def test_a_record_tells_everything_but_the_catalogue() -> None:
    record = Record(1.3, 8192, calibrated=True, learned_tokens=4096, added_tokens=7, refuted=(8192,))
    assert recall(record) == Facts(1.3, 8192, learned_tokens=4096, added_tokens=7, refuted=(8192,))


def test_the_catalogue_is_asked_for_a_window_that_nobody_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    name = ModelName("https://api.example.com/v1", "m", "auto")
    monkeypatch.setattr("trimtab.proxy.models.records.find_window", lambda *_: 30_000)
    assert complete(name, Facts(1.0)) == Facts(1.0, 30_000, from_catalogue=True)
    assert complete(name, Facts(1.0, 8192)) == Facts(1.0, 8192)

    monkeypatch.setattr("trimtab.proxy.models.records.find_window", lambda *_: None)
    assert complete(name, Facts(1.0)) == Facts(1.0)
