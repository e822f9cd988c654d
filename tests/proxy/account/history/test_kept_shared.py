"""The log that replicas share."""

import msgspec
import pytest
import redis.asyncio
from support.events import make_event

from trimtab.proxy.account.history import kept
from trimtab.proxy.account.history.kept import KEY, SharedLog
from trimtab.proxy.account.history.table import Entry, Erased, Row
from trimtab.proxy.store.store import StoreError


async def test_items_come_back_in_pieces_and_the_server_forgets_them(redis_url, monkeypatch):
    monkeypatch.setattr(kept, "ENTRIES_AT_ONCE", 2)
    log, order = SharedLog(redis_url, ttl_seconds=60), Erased("s", 5.0, text_only=True)
    rows = [Row.of(make_event(name), 1) for name in "ab"]
    await log.add(rows)
    await log.add([order])
    async with redis.asyncio.Redis.from_url(redis_url) as server:
        await server.xadd(KEY, {"item": b"[1]"})
        await server.xadd(KEY, {"other": b"x"})
        for absurd in ({"original_tokens": 10**30}, {"at": 1e300}):  # no table can hold these
            await server.xadd(KEY, {"item": msgspec.json.encode(rows[0]._replace(**absurd))})
        assert 0 < await server.ttl(KEY) <= 60
    found: list[Entry] = []
    while entries := await log.read(found[-1].name if found else ""):
        assert len(entries) <= 2
        found += entries
    assert [each.item for each in found[2:]] == [order, None, None, None, None]
    assert [each.item for each in found[:2]] == [rows[at]._replace(entry=found[at].name) for at in range(2)]
    await log.erase(order, [found[0].name])
    assert (await log.read(""))[0] == found[1]
    await log.close()


async def test_a_server_that_is_out_is_asked_once_and_later_again(monkeypatch):
    log = SharedLog("redis://127.0.0.1:9/0", ttl_seconds=60)
    with pytest.raises(StoreError):
        await log.read("")
    with pytest.raises(StoreError, match="a moment ago"):
        await log.read("")
    monkeypatch.setattr(kept, "PAUSE_SECONDS", 0.0)
    log._out_until = 0.0
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be reached"):
            await log.read("")
    await log.close()


@pytest.mark.parametrize(("ttl_seconds", "expires"), [(0.2, 1), (1.4, 1), (60.0, 60)])
def test_the_log_expires_after_whole_seconds(ttl_seconds: float, expires: int) -> None:
    """After one, at the earliest: none would be an error."""
    assert SharedLog("redis://127.0.0.1:9/0", ttl_seconds=ttl_seconds)._ttl_seconds == expires
