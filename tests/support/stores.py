"""Stores in memory for tests of what keeps records in a store."""

import asyncio

from trimtab.proxy.store.store import MemoryStore


class CountedStore(MemoryStore):
    """A store that counts reads."""

    def __init__(self) -> None:
        super().__init__(ttl_seconds=1e6)
        self.reads = 0

    async def get(self, summary_id: str) -> bytes | None:
        self.reads += 1
        return await super().get(summary_id)


class SharedStore(CountedStore):
    """It survives a process, like a store of its own process."""

    name = "shared"


class SlowStore(SharedStore):
    """Others get a turn before it answers."""

    async def get(self, summary_id: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get(summary_id)

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        await asyncio.sleep(0)
        return await super().put(summary_id, sealed, lease)
