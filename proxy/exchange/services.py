"""What requests are served with."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from proxy.compaction.offload import Lane, Workers
from proxy.compaction.pool import Compactors
from proxy.compaction.prefix_watch import PrefixWatch
from proxy.config.schema import Config
from proxy.exchange.early_answer import Patience
from proxy.exchange.report import Recorder
from proxy.http.client import UpstreamClient
from proxy.http.request_body import Uploads
from proxy.memory import Memory
from proxy.state.models.service import Models
from proxy.state.summaries.service import Summaries
from proxy.state.summaries.sliding import SlidingWatch
from proxy.state.tenancy import Tenancy, Tenant
from proxy.wire.codec import Codec


class Lifecycle:
    """Whether the proxy takes requests, and how many it serves; `idle` is set while it serves none.

    `reset_clients` resets every client's connection, so that no answer that is cut looks whole.
    """

    def __init__(self) -> None:
        self.ready = False
        self.reset_clients: Callable[[], None] = lambda: None  # until there is a server
        self.in_flight = 0
        self.idle = asyncio.Event()
        self.idle.set()

    @contextmanager
    def serving(self, show: Callable[[int], None]) -> Iterator[None]:
        """The block serves a request; how many there are is shown when that changes."""
        self.in_flight += 1
        self.idle.clear()
        show(self.in_flight)
        try:
            yield
        finally:
            self.in_flight -= 1
            show(self.in_flight)
            if self.in_flight == 0:
                self.idle.set()


@dataclass(frozen=True, slots=True)
class Services:
    """What a request is served with; one set per proxy. `codecs` are the dialects, by the paths that they claim."""

    config: Config
    client: UpstreamClient
    summaries: Summaries
    recorder: Recorder
    tenancy: Tenancy
    compactors: Compactors
    models: Models
    uploads: Uploads
    memory: Memory
    codecs: Mapping[str, Codec] = field(default_factory=dict)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    watch: PrefixWatch = field(default_factory=PrefixWatch)
    sliding: SlidingWatch = field(default_factory=SlidingWatch)
    patience: Patience = field(default_factory=Patience)
    workers: Workers = field(default_factory=Workers)

    def lane(self, tenant: Tenant) -> Lane:
        """Where a request's work waits. Keys that we gave out tell clients apart; credentials can be invented."""
        return Lane(tenant.key_id or tenant.id, self.config.limits.max_plan_seconds)
