"""Gets summaries: from the store, from a call under way, or from a new call.

Law: every caller gets a text; the digest if no model's summary is available. A text can be found and read only with the
credential that paid for it. One summary causes one call, however many processes ask for it: the one that holds its
lease. A lease is short and is renewed while the call runs, so a dead process holds up others for one lease at most. A
call goes on even if its lease cannot be renewed: the store decides whose text is kept.

A client that slides a window of its own gets digests: if the beginning of a transcript changes with every request, no
summary is ever found again. A client whose transcripts only grow is never mistaken for one.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import islice
from math import inf
from sys import getsizeof

import msgspec
from msgspec import structs

from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.store.store import StoreError, SummaryStore
from trimtab.proxy.summaries.calls import BusyError, LateError, NoSummaryError, Payer, SummaryCalls
from trimtab.proxy.summaries.sealing import seal, unseal
from trimtab.proxy.summaries.summariser import Summariser, Task, ask_model
from trimtab.proxy.tasks import Tasks, find_pause
from trimtab.rules.conversation import Role
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.summary.request import Summary, SummaryRequest, make_digest

PAUSE_SECONDS = 15.0  # After a failed summary; each further failure doubles it. Chosen: about one call.
MAX_PAUSE_SECONDS = 600.0  # chosen: an outage costs one call in ten minutes
MAX_REJECTED_SECONDS = 4 * 3600.0  # The same for rejected notes. Chosen: servers change models now and then.
WAIT_SLACK_SECONDS = 5.0  # Added to a summary's own timeout when another process writes it. Chosen: covers its start.
POLL_SECONDS = 0.2  # Between two looks for another process's summary. Chosen: short compared with a call.
OPENED_BYTES = 4 * 1024 * 1024  # Of decrypted summaries, for the next requests. Chosen: some hundred.
OPENED_SECONDS = 60.0  # Then the store is asked again what is still used. Chosen: short against `store_ttl_seconds`.
LEASE_SECONDS = 6.0  # Others wait this long for a process that has died. Chosen: three renewals may fail.
RENEW_SECONDS = 1.5  # chosen: if one fails after the store's time limit of 2 s, the next one is still in time.
MAX_SESSIONS = 10_000  # Sessions that are remembered; the ones not seen for longest are forgotten. Chosen: some 2 MB.
SLIDING, NOT_READY = "sliding", "not_ready"
"""Reasons beside the results of calls: the client drops its oldest messages; no summary was ready in time, or why is no
longer known."""
_PAUSES_BYTES = 1024 * 1024  # chosen: some ten thousand clients


class _Pause(msgspec.Struct, frozen=True):
    """After `failures` in a row, nothing is asked until then. `is_busy`: the upstream will have time later."""

    failures: int
    until: float
    is_busy: bool = False
    reason: str = ""  # why there was no summary, in a word


class Summaries:
    """Gets summaries, and owns the calls under way. Close it at the end."""

    def __init__(self, store: SummaryStore, client: UpstreamClient, calls: SummaryCalls) -> None:
        self._store = store
        self._client = client
        self._calls = calls
        self._metrics = calls.metrics
        self.fallen = Fallen(calls)
        self._under_way: dict[str, asyncio.Task[Summary | None]] = {}
        self._tasks = Tasks(lambda _: None)  # a call's error reaches those who wait; nobody waits for a prefetch
        self._opened: BytesLRU[str, tuple[Summary, float]] = BytesLRU(
            OPENED_BYTES, lambda _, opened: getsizeof(opened[0].text) + len(opened[0].note)
        )
        """Decrypted summaries by id, which nobody can derive without the secret."""
        self._pauses: BytesLRU[str, _Pause] = BytesLRU(_PAUSES_BYTES, lambda client, _: len(client))

    async def find(self, request: SummaryRequest, summariser: Summariser) -> Summary | None:
        return await self._read(summariser.name_summary(request.key), summariser)

    async def find_base(self, request: SummaryRequest, summariser: Summariser) -> Summary | None:
        """Find the previous summary, which this one extends; None if there is none."""
        return None if request.base is None else await self._read(summariser.name_summary(request.base), summariser)

    async def get(self, task: Task) -> Summary:
        """The summary of a cut, or the digest after the wait, which then stays. A caller that leaves stops no call."""
        summary_id, results = task.summariser.name_summary(task.request.key), self._metrics.summaries
        if task.may_ask and task.request.asks_model and (summary := await self._wait(summary_id, task)) is not None:
            return summary
        results[task.summariser.payer.label, "digest"] += 1
        base = await self.find_base(task.request, task.summariser)
        text = await asyncio.to_thread(make_digest, task.request, base=base, count=task.count)
        return await self._keep(summary_id, task.summariser, Summary(text, by_model=False))

    async def write(self, task: Task, most_seconds: float = inf) -> Summary | None:
        """Have a model write the summary of a cut, waiting as `get` does, but at most so long; None if it is not there.

        Without one, no digest is made, since the caller can do without this cut. A call under way goes on, except on a
        server with few slots.
        """
        if self.is_paused(task.summariser):
            return None
        return await self._wait(task.summariser.name_summary(task.request.key), task, most_seconds)

    async def keep(self, request: SummaryRequest, summariser: Summariser, summary: Summary) -> Summary:
        """Keep the summary of a cut that was written elsewhere, unless the cut has one. Returns the one that counts."""
        return await self._keep(summariser.name_summary(request.key), summariser, summary)

    def prefetch(self, task: Task) -> bool:
        """Start to write a summary in the background; return whether a call began. A failure only causes a pause."""
        summary_id = task.summariser.name_summary(task.request.key)
        if summary_id in self._under_way or self.is_paused(task.summariser):
            return False
        _ = self._start(summary_id, task, "prefetched")
        return True

    async def write_meanwhile(self, task: Task) -> bool:
        """Have a model write a summary; return whether it did. If the caller is cancelled, the call is given up."""
        summary_id = task.summariser.name_summary(task.request.key)
        if summary_id in self._under_way or self.is_paused(task.summariser):
            return False
        running = self._start(summary_id, task, "prefetched")
        try:
            await asyncio.wait({running})
        finally:
            running.cancel()  # without effect on a call that has ended
        return not running.cancelled() and running.result() is not None

    def is_paused(self, summariser: Summariser) -> bool:
        """Whether earlier failures forbid asking any model for this client's summaries just now."""
        now = time.monotonic()
        return all(
            pause is not None and now < pause.until
            for pause in (self._pauses.get(one.client_id) for one in (summariser, *summariser.others))
        )

    def is_busy(self, summariser: Summariser) -> bool:
        """Whether the models are only busy, so that a summary may be written soon."""
        pauses = (self._pauses.get(one.client_id) for one in (summariser, *summariser.others))
        return any(pause is not None and pause.is_busy for pause in pauses)

    def tell_failure(self, summariser: Summariser) -> str:
        """Why the newest summary of this client was not written, in a word; empty if none failed."""
        pause = self._pauses.get(summariser.client_id)
        return "" if pause is None else pause.reason

    def is_under_way(self, request: SummaryRequest, summariser: Summariser) -> bool:
        return summariser.name_summary(request.key) in self._under_way

    async def settle(self) -> None:
        """Wait until no summary is being written."""
        await self._tasks.settle()

    async def close(self) -> None:
        await self._tasks.close()

    async def _wait(self, summary_id: str, task: Task, most_seconds: float = inf) -> Summary | None:
        """The summary, if it is written within `most_seconds` and the time that a request may wait."""
        if summary_id in self._under_way:
            self._metrics.summaries[task.summariser.payer.label, "joined"] += 1
        running = self._start(summary_id, task, "made")
        done, _ = await asyncio.wait({running}, timeout=min(task.summariser.patience_seconds, most_seconds))
        summariser = task.summariser
        if not done and summariser.few_slots and running.cancel():  # the request that has waited needs the slot
            pause = self._pauses.get(summariser.client_id)
            self._pauses[summariser.client_id] = _lengthen(pause, LateError("timed out"))
        is_given_up = not done or (summariser.few_slots and running.cancelled())
        return None if is_given_up else running.result()

    def _start(self, summary_id: str, task: Task, result: str) -> asyncio.Task[Summary | None]:
        """Return the call for this summary; start it unless it is under way."""
        running = self._under_way.get(summary_id)
        if running is None:
            # Not the caller's task: it outlives a client that leaves, and close() ends it.
            running = self._under_way[summary_id] = self._tasks.start(self._write(summary_id, task, result))
            running.add_done_callback(lambda _: self._under_way.pop(summary_id, None))
        return running

    async def _write(self, summary_id: str, task: Task, result: str) -> Summary | None:
        """Write a summary and store it, or wait for the process that is writing it; None if none is available."""
        # Strategy: look, try to get the lease, wait, look again. Whoever holds the lease looks once more before asking,
        # because the last holder may have written between our look and our lease.
        summary = await self._read(summary_id, task.summariser)
        deadline = time.monotonic() + task.summariser.settings.timeout_seconds + WAIT_SLACK_SECONDS
        while summary is None and time.monotonic() < deadline:
            async with hold(self._store, summary_id) as lease:
                if lease is not None:
                    return await self._read(summary_id, task.summariser) or await self._ask(task, result, lease)
            await asyncio.sleep(POLL_SECONDS)
            summary = await self._read(summary_id, task.summariser)
            if summary is not None:
                self._metrics.summaries[task.summariser.payer.label, "joined"] += 1
        return summary

    async def _ask(self, task: Task, result: str, lease: int) -> Summary | None:
        """Ask the models in their order, and store what one writes; None if each of them fails or is paused."""
        settings, payer = task.summariser.settings, task.summariser.payer
        deadline = time.monotonic() + settings.timeout_seconds
        asked = [one for one in (task.summariser, *task.summariser.others) if not self._is_paused_itself(one)]
        if not asked:
            asked = await self._wait_for_busy(task.summariser, settings.timeout_seconds / 2)
        base = await self.find_base(task.request, task.summariser)
        # If the previous text is a digest, the model reads that part of the transcript again, which says more.
        base_text = base.text or None if base and base.by_model else None
        for left, one in reversed([*enumerate(reversed(asked))]):
            # Each but the last has half of the time, so that the next one has some, too.
            seconds = (deadline - time.monotonic()) / (1 if left == 0 else 2)
            try:
                handed = _hand_over(task, one, has_others=left > 0)
                summary = await ask_model(handed, base_text, self._client, self._calls, seconds)
            except NoSummaryError as error:
                self._note_failure(one, error, payer if left == 0 else None)
            except asyncio.CancelledError as given_up:  # the slot was needed; what failed before that has failed
                self._note_failure(one, given_up.__cause__, payer)
                raise
            else:
                self._pauses[one.client_id] = _Pause(0, 0.0)
                self._metrics.summaries[payer.label, result] += 1
                self._calls.note_success(payer.name)
                summary_id = task.summariser.name_summary(task.request.key)
                return await self._keep(summary_id, task.summariser, summary, lease)
        return None

    def _note_failure(self, summariser: Summariser, error: BaseException | None, payer: Payer | None) -> None:
        """Pause a model that wrote nothing. payer: of a summary that is not tried any more."""
        if not isinstance(error, NoSummaryError):
            return
        if not self._is_paused_itself(summariser):  # of several failures at the same time, one counts
            self._pauses[summariser.client_id] = _lengthen(self._pauses.get(summariser.client_id), error)
        if payer is not None:
            self._metrics.summaries[payer.label, "failed"] += 1
            self._calls.note_failure(payer.name, str(error))

    def _is_paused_itself(self, summariser: Summariser) -> bool:
        return self.is_paused(replace(summariser, others=()))

    async def _wait_for_busy(self, summariser: Summariser, most_seconds: float) -> list[Summariser]:
        """The first model whose busy time ends soon, once it has ended; none if there is none."""
        for one in (summariser, *summariser.others):
            pause = self._pauses.get(one.client_id)
            if pause is not None and pause.is_busy and (left := pause.until - time.monotonic()) <= most_seconds:
                await asyncio.sleep(max(left, 0.0))
                return [one]
        return []

    async def _read(self, summary_id: str, summariser: Summariser) -> Summary | None:
        opened = self._opened.get(summary_id)
        if opened is not None and time.monotonic() < opened[1]:
            return opened[0]
        return self._open(summary_id, summariser.secret, await self._store.get(summary_id))

    def _open(self, summary_id: str, secret: bytes, sealed: bytes | None) -> Summary | None:
        """Decrypt a stored summary and remember it for a while; a stored summary never changes."""
        summary = None if sealed is None else unseal(secret, summary_id, sealed)
        if summary is not None:
            self._opened[summary_id] = summary, time.monotonic() + OPENED_SECONDS
        return summary

    async def _keep(
        self, summary_id: str, summariser: Summariser, summary: Summary, lease: int | None = None
    ) -> Summary:
        """Store a text; return the one that is stored, whoever wrote it, or this one if none is in time."""
        written = seal(summariser.secret, summary_id, summary)
        deadline = time.monotonic() + summariser.settings.timeout_seconds
        sealed = await self._store.put(summary_id, written, lease)
        while sealed is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            sealed = await self._store.put(summary_id, written, lease)
        return self._open(summary_id, summariser.secret, sealed) or summary


def _hand_over(task: Task, summariser: Summariser, *, has_others: bool) -> Task:
    """The task for one of its summarisers. Only the first one is asked within the conversation."""
    if summariser is task.summariser:
        return structs.replace(task, has_others=has_others)
    payer = structs.replace(summariser.payer, session=task.summariser.payer.session)
    return structs.replace(task, summariser=replace(summariser, payer=payer), inline=None, has_others=has_others)


def _lengthen(pause: _Pause | None, error: NoSummaryError) -> _Pause:
    """The pause after a failure: as long as a busy upstream asks for, else longer with each failure."""
    failures = pause.failures + 1 if pause else 1
    most_seconds = MAX_REJECTED_SECONDS if error.result == "rejected" else MAX_PAUSE_SECONDS
    seconds, is_busy = find_pause(failures, PAUSE_SECONDS, most_seconds), isinstance(error, BusyError)
    if isinstance(error, BusyError) and error.seconds is not None:
        seconds, failures = min(error.seconds, most_seconds), 0
    return _Pause(failures, time.monotonic() + seconds, is_busy, error.result)


class Fallen:
    """Sessions with digests for wanted summaries, and why; each is told of once, until a summary stands in it."""

    def __init__(self, calls: SummaryCalls) -> None:
        self._calls = calls
        self._reasons: OrderedDict[str, str] = OrderedDict()

    def note(self, session: str, label: str, model: str, reason: str) -> str:
        """Note a digest in a session; returns its reason. label: of the metrics. model: as it may be logged."""
        known = self._reasons.get(session)
        if known is None:
            known = self._reasons[session] = reason or NOT_READY
            self._calls.note_fallen(session, label, model, known)
            if len(self._reasons) > MAX_SESSIONS:
                self._reasons.popitem(last=False)
        self._reasons.move_to_end(session)
        return known

    def recover(self, session: str) -> None:
        """Note that a model's summary stands in a session."""
        self._reasons.pop(session, None)

    def count(self) -> Counter[str]:
        """How many sessions have digests now, by the reason."""
        return Counter(self._reasons.values())


@asynccontextmanager
async def hold(
    store: SummaryStore, summary_id: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[int | None]:
    """Hold a summary's lease, renewed until the block ends. Yields None if another process holds it."""
    lease = await store.claim(summary_id, LEASE_SECONDS)
    if lease is None:
        yield None
        return
    tasks = Tasks(lambda _: None)  # the call goes on without its lease
    _ = tasks.start(_renew(store, summary_id, lease, sleep))
    try:
        yield lease
    finally:
        await tasks.close()
        await store.release(summary_id, lease)


async def _renew(store: SummaryStore, summary_id: str, lease: int, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Renew a lease until cancelled. After a store error it tries again, because the lease may still be valid."""
    while True:
        await sleep(RENEW_SECONDS)
        with suppress(StoreError):
            await store.renew(summary_id, lease, LEASE_SECONDS)


SUMMARIES = 3  # So many in a row, each used less often, tell a sliding client. Chosen: two happen by chance.
LAST_MESSAGES = 2  # Messages that identify a covered part. Chosen: a single one may be just `continue`.
MAX_NOTED_BYTES = 1024 * 1024  # chosen: some thousand clients
NOTED_BYTES = 400  # memory of one entry, an estimate for CPython


class _Noted(msgspec.Struct):
    """A summary that was asked for: its key, digests of its last messages, and how often it was found."""

    key: str
    last_digests: frozenset[bytes]
    uses: int = 0


class SlidingWatch:
    def __init__(self) -> None:
        self._noted: BytesLRU[str, deque[_Noted]] = BytesLRU(MAX_NOTED_BYTES, lambda *_: SUMMARIES * NOTED_BYTES)
        # The key that was found, and how many times in a row.
        self._found: BytesLRU[str, tuple[str, int]] = BytesLRU(MAX_NOTED_BYTES, lambda *_: NOTED_BYTES)

    def note(self, client: str, request: SummaryRequest) -> None:
        noted = self._noted.get(client) or deque(maxlen=SUMMARIES)
        if all(one.key != request.key for one in noted):
            # Tool results are left out, because clients that mask old results change them.
            said = (message.digest for message in reversed(request.span) if message.role is not Role.TOOL)
            noted.append(_Noted(request.key, frozenset(islice(said, LAST_MESSAGES))))
            self._noted[client] = noted

    def use(self, client: str, request: SummaryRequest) -> None:
        """Note that a stored summary was found. If it is found several times in a row, the transcript grows."""
        noted = self._noted.get(client)
        if not noted:
            return
        for one in noted:
            one.uses += one.key == request.key
        key, found = known = self._found.get(client) or ("", 0)
        found = min(found + 1, SUMMARIES) if key == request.key else 1
        if known != (request.key, found):
            self._found[client] = request.key, found
        if found >= SUMMARIES and all(one.uses < SUMMARIES for one in noted):
            self._noted.pop(client)

    def slides(self, client: str, plan: Plan) -> bool:
        """Whether this transcript contains what the last summaries covered, but each with a different beginning."""
        noted = self._noted.get(client) or ()
        if len(noted) < SUMMARIES or any(one.uses >= SUMMARIES for one in noted):
            return False
        hashes = {chain.hex() for chain in plan.hashes}
        digests = {message.digest for message in plan.conversation.messages}
        return all(one.key not in hashes and one.last_digests <= digests for one in noted)
