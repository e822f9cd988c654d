"""The sums of a process reach the store once each, whatever the store does."""

import asyncio

import pytest

from trimtab.proxy.account.statistics.books import Batch, Books, MemoryStatistics, Place, Sums
from trimtab.proxy.store.store import StoreError
from trimtab.proxy.telemetry.metrics import Metrics

DAY = "1970-01-02"
PLACE = Place(DAY, "m", "-")


class Moody(MemoryStatistics):
    """A store that fails while `is_out`; before that it keeps the batch if `keeps`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_out = self.keeps = False

    async def add(self, batch: Batch) -> None:
        if self.keeps or not self.is_out:
            await super().add(batch)
        if self.is_out:
            raise StoreError(self.name, "it is out")


def _books(store, **options) -> Books:
    return Books(Metrics(), store, clock=lambda: 90_000.0, **options)


@pytest.mark.parametrize("keeps", [False, True])
async def test_after_an_outage_every_request_is_counted_once(keeps, log) -> None:
    store, errors = Moody(), []
    books = _books(store, on_error=errors.append, log=log)
    store.is_out, store.keeps = True, keeps
    for _ in range(3):
        books.book("m", "", Sums(1))
        await books.flush()
    assert errors == ["memory"] * 3
    assert [line["event"] for line in log.lines if line["event"] == "statistics_unwritten"] == ["statistics_unwritten"]
    store.is_out = False
    await books.flush()
    assert await store.read(DAY, DAY) == {PLACE: Sums(3)}


async def test_the_books_write_on_their_own_and_at_the_end() -> None:
    store, turns, ended = MemoryStatistics(), asyncio.Queue(), asyncio.Queue()

    async def sleep(_: float) -> None:
        ended.put_nowait(None)
        await turns.get()

    books = _books(store, sleep=sleep)
    books.start()
    books.book("m", "", Sums(1))
    turns.put_nowait(None)
    for _ in range(2):  # the second sleep comes after the first write
        await ended.get()
    assert await store.read(DAY, DAY) == {PLACE: Sums(1)}
    books.book("m", "ann", Sums(1))
    await books.close()
    assert await store.read(DAY, DAY) == {PLACE: Sums(1), Place(DAY, "m", "ann"): Sums(1)}
