"""The laws of every store of summaries."""

import asyncio


async def test_what_was_put_is_found_byte_for_byte(subject) -> None:
    """The law holds for any bytes, and for every process that shares the store."""
    sealed = bytes(range(256)) * 40

    assert await subject.store.get("id") is None
    assert await subject.store.put("id", sealed) == sealed
    assert (await subject.store.get("id"), await subject.twin.get("id")) == (sealed, sealed)


async def test_of_many_writers_at_once_one_wins(subject) -> None:
    stores = (subject.store, subject.twin) * 8
    kept = await asyncio.gather(*(store.put("id", b"%d" % number) for number, store in enumerate(stores)))

    assert len(set(kept)) == 1
    assert {await subject.store.get("id"), await subject.twin.get("id")} == set(kept)


async def test_of_many_claims_at_once_one_is_granted(subject) -> None:
    leases = await asyncio.gather(*(store.claim("id", 60) for store in (subject.store, subject.twin) * 8))

    assert len([lease for lease in leases if lease is not None]) == 1


async def test_a_lease_given_back_is_free(subject) -> None:
    first = await subject.store.claim("id", 60)
    await subject.store.release("id", first)
    second = await subject.twin.claim("id", 60)

    assert second > first


async def test_a_lease_that_was_lost_cannot_be_given_back(subject) -> None:
    """A process that slept through the end of its lease does not end the next holder's lease."""
    lost = await subject.store.claim("id", 60)
    await subject.age(61)
    held = await subject.twin.claim("id", 60)
    await subject.store.release("id", lost)

    assert held > lost
    assert await subject.store.claim("id", 60) is None


async def test_who_lost_the_lease_cannot_write_past_the_new_holder(subject) -> None:
    """The old holder learns that nothing was kept, and the new holder's summary stays."""
    lost = await subject.store.claim("id", 60)
    await subject.age(61)
    held = await subject.twin.claim("id", 60)

    assert await subject.store.put("id", b"late", lost) is None
    assert await subject.twin.get("id") is None
    assert await subject.twin.put("id", b"held", held) == b"held"
    assert await subject.store.put("id", b"late", lost) == b"held"


async def test_a_lease_that_ran_out_but_was_not_taken_over_still_writes(subject) -> None:
    lease = await subject.store.claim("id", 60)
    await subject.age(61)

    assert await subject.store.put("id", b"late", lease) == b"late"


async def test_a_lease_that_is_renewed_stays(subject) -> None:
    lease = await subject.store.claim("id", 60)
    for _ in range(4):
        await subject.age(50)
        assert await subject.store.renew("id", lease, 60)
        assert await subject.twin.claim("id", 60) is None
    await subject.age(61)

    assert await subject.twin.claim("id", 60) > lease


async def test_a_lease_that_has_ended_cannot_be_renewed(subject) -> None:
    """It ran out, was given back, or was never granted. The summary can be claimed."""
    lease = await subject.store.claim("id", 60)
    await subject.age(61)
    assert not await subject.store.renew("id", lease, 60)
    again = await subject.twin.claim("id", 60)
    await subject.twin.release("id", again)

    assert not await subject.twin.renew("id", again, 60)
    assert not await subject.store.renew("other", lease, 60)
    assert await subject.store.claim("id", 60) is not None


async def test_an_unused_summary_is_forgotten(subject) -> None:
    await subject.store.put("id", b"old")
    await subject.age(subject.ttl_seconds + 1)

    assert await subject.store.get("id") is None
    assert await subject.store.put("id", b"new") == b"new"
    assert await subject.twin.get("id") == b"new"


async def test_a_summary_in_use_is_not_forgotten(subject) -> None:
    await subject.store.put("id", b"sealed")
    for _ in range(4):
        await subject.age(0.75 * subject.ttl_seconds)
        assert await subject.store.get("id") == b"sealed"


async def test_a_summary_that_is_written_again_is_in_use(subject) -> None:
    for sealed in (b"1", b"2", b"3", b"4"):
        assert await subject.store.put("id", sealed) == b"1"
        await subject.age(0.75 * subject.ttl_seconds)
