"""The chain of records that the store has of a model."""

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.model_learning import NAME

from proxy.state.models.records import MAX_RATIO, Record, Records, _record_id
from proxy.state.stores.memory import MemoryStore

WRITTEN_BY_PREDECESSORS = (
    (b'{"ratio":1.3}', Record(1.3)),
    (b'{"ratio":1.3,"window_tokens":8192,"calibrated":true}', Record(1.3, 8192, calibrated=True)),
    (
        b'{"ratio":1.0,"window_tokens":null,"calibrated":false,"learned_tokens":4096,"added_tokens":9,"refuted":[8192]}',
        Record(1.0, learned_tokens=4096, added_tokens=9, refuted=(8192,)),
    ),
    (b'{"ratio":1.0,"added_by_a_later_version":[1]}', Record(1.0)),
)


async def test_what_is_appended_is_read_as_the_last() -> None:
    records = Records(MemoryStore())
    assert await records.read(NAME) == (0, None)
    assert await records.append(NAME, 0, Record(1.1)) == (1, Record(1.1))
    assert await records.append(NAME, 1, Record(1.2)) == (2, Record(1.2))

    assert await records.read(NAME) == (2, Record(1.2))
    assert await records.read(replace(NAME, vocabulary="other")) == (0, None)


async def test_of_two_that_append_in_one_place_the_first_wins() -> None:
    records = Records(MemoryStore())
    await records.append(NAME, 0, Record(1.1))

    assert await records.append(NAME, 0, Record(1.2)) == (1, Record(1.1))


async def test_records_of_other_versions_are_read() -> None:
    """A user's store survives an update, and going back."""
    for encoded, record in WRITTEN_BY_PREDECESSORS:
        store = MemoryStore()
        await store.put(_record_id(NAME, 1), encoded)
        assert await Records(store).read(NAME) == (1, record)


@given(ratio=st.floats(1 / MAX_RATIO, MAX_RATIO), window=st.none() | st.integers(1024, 10**8))
async def test_whatever_is_kept_comes_back(ratio: float, window: int | None) -> None:
    store, record = MemoryStore(), Record(ratio, window, refuted=(8192,))
    await Records(store).append(NAME, 0, record)
    assert await Records(store).read(NAME) == (1, record)


def test_an_id_tells_neither_the_upstream_nor_the_model() -> None:
    """But to who knows both: it is the same in every process."""
    found = _record_id(NAME, 1)
    assert found == _record_id(replace(NAME), 1) != _record_id(NAME, 2)
    assert NAME.model not in found
    assert "127.0.0.1" not in found
    assert msgspec.json.encode(found)
