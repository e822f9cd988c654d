"""Summaries that several processes want: the writer renews its lease; one that died or lost it delays nobody."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from support.client import SMALL, post
from support.sessions import make_session
from upstreams.recording import hold_summaries

from trimtab.proxy.store.store import MemoryStore
from trimtab.proxy.summaries import sealing, service
from trimtab.proxy.summaries.service import LEASE_SECONDS
from trimtab.rules.summary.request import Summary

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")
BODY = {"model": "m", "messages": make_session(36, result_words=200)["messages"][:-1]}
OTHER = "What the other process has written of the work."
WAIT_SECONDS = 30.0


class Shared(MemoryStore):
    """A store with a clock that only the test moves. It counts requests for the summary, and refusals."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.counts: Counter[str] = Counter()
        self.summary_id = ""
        super().__init__(clock=lambda: self.seconds)

    async def claim(self, summary_id: str, seconds: float) -> int | None:
        if not self.summary_id:
            self.summary_id = summary_id
            await self.begin()
        lease = await super().claim(summary_id, seconds)
        self.counts["claim", lease is not None] += 1
        return lease

    async def begin(self) -> None:
        """Prepare the store before the first claim."""

    async def renew(self, summary_id: str, lease: int, seconds: float) -> bool:
        holds = await super().renew(summary_id, lease, seconds)
        self.counts["renew", holds] += 1
        return holds

    async def put(self, summary_id: str, sealed: bytes, lease: int | None = None) -> bytes | None:
        kept = await super().put(summary_id, sealed, lease)
        self.counts["put", kept is not None] += lease is not None
        return kept

    async def claim_elsewhere(self) -> int | None:
        return await super().claim(self.summary_id, LEASE_SECONDS)


class Claimed(Shared):
    """As `Shared`, but another process claims the summary a moment earlier."""

    async def begin(self) -> None:
        assert await self.claim_elsewhere() is not None


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch) -> None:
    """Whatever is done at intervals is done at every turn of the loop."""
    monkeypatch.setattr(service, "RENEW_SECONDS", 0)
    monkeypatch.setattr(service, "POLL_SECONDS", 0)


async def begin(start_proxy, store: Shared):
    proxy = await start_proxy(*SETTINGS)
    proxy.services.summaries._store = store
    return proxy


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Check at every turn of the loop. Raises TimeoutError if it never becomes true."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():  # noqa: ASYNC110 - counters have no event
            await asyncio.sleep(0)


async def test_a_summary_is_asked_for_when_the_lease_of_a_process_that_died_has_ended(
    client, upstream, start_proxy
) -> None:
    """The wait lasts one lease, although a summary may take much longer. Then one call writes it."""
    store = Claimed()
    proxy = await begin(start_proxy, store)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(post(client, proxy.url + "/v1/chat/completions", BODY))
        await wait_until(lambda: store.counts["claim", False] > 1)
        assert upstream.summaries == []
        store.seconds += LEASE_SECONDS
    response, _ = waiting.result()
    assert response.headers["x-trimtab-decisions"].startswith("summarise;")
    assert len(upstream.summaries) == 1
    assert store.counts["claim", True] == 1


async def test_who_lost_the_lease_goes_by_the_text_of_its_new_holder(
    client, upstream, start_proxy, monkeypatch
) -> None:
    """For example after a pause of the machine. All processes forward the same text for a cut."""
    secrets: list[bytes] = []
    monkeypatch.setattr(service, "seal", lambda *given: secrets.append(given[0]) or sealing.seal(*given))
    release = hold_summaries(upstream)
    store = Shared()
    proxy = await begin(start_proxy, store)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(post(client, proxy.url + "/v1/chat/completions", BODY))
        await wait_until(lambda: len(upstream.summaries) == 1)
        store.seconds += LEASE_SECONDS
        held = await store.claim_elsewhere()
        release.set()
        await wait_until(lambda: store.counts["put", False] > 1)
        assert upstream.chats == []
        theirs = sealing.seal(secrets[0], store.summary_id, Summary(OTHER, by_model=True))
        assert await MemoryStore.put(store, store.summary_id, theirs, held) == theirs
    assert OTHER in upstream.chats[0].body.decode()
    assert len(upstream.summaries) == 1


async def test_who_lost_the_lease_writes_if_its_new_holder_has_given_up(client, upstream, start_proxy) -> None:
    """Its text is there, and no other process is writing one."""
    release = hold_summaries(upstream)
    store = Shared()
    proxy = await begin(start_proxy, store)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(post(client, proxy.url + "/v1/chat/completions", BODY))
        await wait_until(lambda: len(upstream.summaries) == 1)
        store.seconds += LEASE_SECONDS
        held = await store.claim_elsewhere()
        release.set()
        await wait_until(lambda: store.counts["put", False] > 1)
        await store.release(store.summary_id, held)
    assert "SUMMARY of the work so far." in upstream.chats[0].body.decode()
    assert await store.get(store.summary_id) is not None
