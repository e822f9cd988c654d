"""The objects that every request shares, and whether there is memory and a thread for a request.

Law: if memory or a thread is missing, a request gets an error response, or streams through without being decoded.
Requests already admitted are not disturbed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from trimtab.proxy.account.budgets import Budgets
from trimtab.proxy.account.history.kept import History
from trimtab.proxy.account.prompt_cache import PreviousRequests
from trimtab.proxy.account.recorder import Recorder, fail_open
from trimtab.proxy.account.recordings.writing import Recordings
from trimtab.proxy.account.sessions import SessionNames
from trimtab.proxy.catalogue.prompt_caches import Lifetimes, Refusals
from trimtab.proxy.compaction.offload import LARGE_BODY_BYTES, THREAD_BYTES, BusyError, Lane, Workers
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.schema import Config
from trimtab.proxy.exchange.arrival import Arrival
from trimtab.proxy.exchange.early_answer import Patience
from trimtab.proxy.http.client import UpstreamClient
from trimtab.proxy.http.errors import NO_MEMORY_LEFT, NO_THREAD_LEFT, OverloadedError
from trimtab.proxy.http.relay import Reply
from trimtab.proxy.http.request_body import ReceivedBody, Uploads, receive_body
from trimtab.proxy.http.tenancy import Tenancy, Tenant
from trimtab.proxy.lru import BytesLRU
from trimtab.proxy.memory import Memory, estimate_work
from trimtab.proxy.models.service import Models
from trimtab.proxy.summaries.cold_cuts import ColdCuts
from trimtab.proxy.summaries.kept_texts import FoundTexts, Originals
from trimtab.proxy.summaries.service import SlidingWatch, Summaries
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.wire.cache_help import Addition
from trimtab.proxy.wire.codec import Codec
from trimtab.proxy.wire.transcript.body import MIN_BYTES, PrefixMatch

if TYPE_CHECKING:
    from trimtab.proxy.telemetry.otlp import Spans

QUIET_SECONDS = 3.0  # Then the user reads or writes. Chosen: clients ask for titles and the like at once.
CHANGED_BYTES = 1024 * 1024
"""Chosen: some thousand sessions. One that is forgotten costs one refused request, which its client never sees."""


class Lifecycle:
    """Whether the proxy takes requests, and how many it serves.

    show: gets the number of requests in flight. drain: called when none is left.
    by_client: the requests in flight of each client that has a name, by that name.
    reset_clients: resets every client's connection, so that no interrupted answer looks complete.
    background: work that pages have asked for, and `meanwhile`; it ends with the proxy.
    meanwhile: what is done while no request comes.
    """

    def __init__(self) -> None:
        self.ready = False
        self.reset_clients: Callable[[], None] = lambda: None  # until there is a server
        self.background = Tasks(lambda _: None)  # until there is something that records errors
        self.show: Callable[[int], None] = lambda _: None
        self.drain: Callable[[], None] = lambda: None
        self.in_flight = 0
        self.by_client: dict[str, set[Reply]] = {}
        self.idle = asyncio.Event()
        self.idle.set()
        self.meanwhile: asyncio.Task[None] | None = None

    def do_meanwhile(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this while no request comes; it begins QUIET_SECONDS after the last one, and the next one cancels it."""
        self.give_up()
        self.meanwhile = self.background.start(self._wait_for_quiet(work))

    def give_up(self) -> None:
        if self.meanwhile is not None:
            self.meanwhile.cancel()
            self.meanwhile = None

    async def _wait_for_quiet(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self.idle.wait()
        await asyncio.sleep(QUIET_SECONDS)
        await work()

    def count_of(self, client: str) -> int:
        """A client's requests in flight, but those whose last byte is sent: the next may come before they end."""
        return sum(not reply.last_byte_at for reply in self.by_client.get(client, ()))


class Serving:
    """Context manager: the block serves a request."""

    __slots__ = ("_client", "_lifecycle", "_reply")

    def __init__(self, lifecycle: Lifecycle, reply: Reply, client: str) -> None:
        self._lifecycle, self._reply, self._client = lifecycle, reply, client

    def __enter__(self) -> None:
        lifecycle = self._lifecycle
        lifecycle.in_flight += 1
        if lifecycle.meanwhile is not None:
            lifecycle.give_up()
        if self._client:
            lifecycle.by_client.setdefault(self._client, set()).add(self._reply)
        lifecycle.idle.clear()
        lifecycle.show(lifecycle.in_flight)

    def __exit__(self, *_: object) -> None:
        lifecycle = self._lifecycle
        lifecycle.in_flight -= 1
        if self._client:
            replies = lifecycle.by_client[self._client]
            replies.discard(self._reply)
            if not replies:
                del lifecycle.by_client[self._client]
        lifecycle.show(lifecycle.in_flight)
        if lifecycle.in_flight == 0:
            lifecycle.drain()
            lifecycle.idle.set()


class Services(msgspec.Struct, frozen=True):
    """The objects that serve requests; one set for each process.

    changed_sessions: those whose upstream has refused thinking that was written behind other messages.
    found_texts: what was found for a model's calls beside the client's own.
    codecs: by the ending of their paths. past: what the dashboard shows; empty while it is off.
    pages_in_flight: how many of our own pages are being made or read, by their readers.
    """

    config: Config
    client: UpstreamClient
    summaries: Summaries
    recorder: Recorder
    tenancy: Tenancy
    compactors: Compactors
    models: Models
    uploads: Uploads
    memory: Memory
    cold_cuts: ColdCuts
    originals: Originals
    found_texts: FoundTexts
    codecs: Mapping[str, Codec] = msgspec.field(default_factory=dict)
    lifecycle: Lifecycle = msgspec.field(default_factory=Lifecycle)
    previous: PreviousRequests = msgspec.field(default_factory=PreviousRequests)
    session_names: SessionNames = msgspec.field(default_factory=SessionNames)
    sliding: SlidingWatch = msgspec.field(default_factory=SlidingWatch)
    patience: Patience = msgspec.field(default_factory=Patience)
    workers: Workers = msgspec.field(default_factory=Workers)
    refused_additions: Refusals[Addition] = msgspec.field(default_factory=Refusals)
    changed_sessions: BytesLRU[tuple[str, str, bytes], bool] = msgspec.field(
        default_factory=lambda: BytesLRU(CHANGED_BYTES, lambda key, _: sum(map(len, key)))
    )
    lifetimes: Lifetimes = msgspec.field(default_factory=Lifetimes)
    past: History = msgspec.field(default_factory=History)
    recordings: Recordings | None = None
    spans: "Spans | None" = None
    budgets: Budgets | None = None
    pages_in_flight: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def history(self) -> History | None:
        """What keeps each request for the dashboard; None if the dashboard is off."""
        return self.past if self.config.dashboard.enabled else None

    def lane(self, tenant: Tenant) -> Lane:
        """The queue of a tenant's work. A client key names it, if there is one: other credentials can be invented."""
        return Lane(tenant.key_id or tenant.id, self.config.limits.max_plan_seconds)


async def receive(
    services: Services, reply: Reply, arrival: Arrival, lane: Lane, codec: Codec | None = None
) -> tuple[ReceivedBody, PrefixMatch | None]:
    """Receive the body, and find the longest beginning that it shares with an earlier one of the tenant and the codec.

    One that memory could never hold is too large and not decoded. Raises SlowRequestError and OverloadedError.
    """
    received = await hold(services, reply.request, lane)
    body = received.json
    if body is None:
        return received, None
    size_bytes, match = len(body), None
    if codec is not None and size_bytes >= MIN_BYTES:
        with fail_open(services.recorder, arrival.request_id, "read"):
            match = services.compactors.find_kept_bodies(arrival.tenant.id).find(codec.name, body)
    known_bytes = 0 if match is None else match.stop
    if size_bytes - known_bytes > LARGE_BODY_BYTES:
        work_bytes = await asyncio.to_thread(estimate_work, body, known_bytes)
    else:
        work_bytes = estimate_work(body, known_bytes)
    wire, beginning = received.wire, received.beginning
    if size_bytes + work_bytes > services.memory.most_bytes:
        return ReceivedBody(wire, None, beginning, is_too_large=True), None
    return ReceivedBody(wire, body, beginning, work_bytes=work_bytes), match


async def hold(services: Services, request: web.BaseRequest, lane: Lane) -> ReceivedBody:
    """Receive the body, or the beginning of one too large, in its account. Raises SlowRequestError, OverloadedError."""
    most_bytes = min(services.config.limits.max_body_bytes, services.memory.most_body_bytes)
    services.uploads.open(request, services.memory.open(lane.name))
    run = partial(services.workers.run, lane, size_bytes=THREAD_BYTES)
    try:
        return await receive_body(request, most_bytes, services.uploads, run)
    except (BusyError, MemoryError) as error:
        raise translate(error) from error


class working:  # noqa: N801 - used like a function
    """Context manager: inside the block there is memory for work on the body. Raises OverloadedError."""

    __slots__ = ("_account", "_before_bytes", "_received", "_wait_seconds")

    def __init__(self, services: Services, request: web.BaseRequest, received: ReceivedBody) -> None:
        self._account = None if received.json is None else services.uploads.find_account(request)
        self._before_bytes = 0 if self._account is None else self._account.held_bytes
        self._received = received
        self._wait_seconds = services.config.limits.max_plan_seconds

    async def __aenter__(self) -> None:
        account, work_bytes = self._account, self._received.work_bytes
        if account is not None and not await account.begin_work(work_bytes, wait_seconds=self._wait_seconds):
            raise OverloadedError(NO_MEMORY_LEFT)

    async def __aexit__(self, *_: object) -> None:
        if self._account is not None:
            self._account.end_work(self._before_bytes, len(self._received.json or b""))


def translate(error: BusyError | MemoryError) -> OverloadedError:
    return OverloadedError(NO_THREAD_LEFT if isinstance(error, BusyError) else NO_MEMORY_LEFT)
