"""What a proxy holds outside of requests: tasks, descriptors, connections. A fault must not change it."""

import asyncio
import gc
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse, web
from upstreams.faulty import FaultyUpstream
from yarl import URL

from trimtab.proxy.exchange.tell import Finished
from trimtab.proxy.server.app import Proxy

CALM_SECONDS = 30.0
PER_REQUEST = (Finished, ClientResponse, web.BaseRequest, web.StreamResponse)
"""No object of these classes outlives its request."""


def read_sample(proxy: Proxy, name: str, **labels: str) -> float:
    """The value of a metric of the proxy, summed over all labels that are not given."""
    samples = (one for metric in proxy.services.recorder.metrics.registry.collect() for one in metric.samples)
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def count_kept() -> Counter[str]:
    """Count the live objects that belong to one request, by class."""
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if issubclass(type(one), PER_REQUEST))


class Leaks:
    """Compares what the proxy holds now with what it held at `mark`. Mark after a first request has been served."""

    def __init__(self, proxy: Proxy, *upstreams: FaultyUpstream) -> None:
        self._proxy = proxy
        self._upstreams = upstreams
        self._before: set[str] | None = None

    async def mark(self) -> None:
        """Remember what the proxy holds now as the expected state."""
        await self._hang_up()
        self._before = self._held()

    async def check(self) -> None:
        """Nothing remains of the requests: no task, descriptor or request in flight, and only idle connections."""
        await self._until(lambda: read_sample(self._proxy, "trimtab_requests_in_flight") == 0, "in flight")
        connector = self._proxy.services.client._session.connector
        assert connector is not None
        await self._until(lambda: not connector._acquired, "connections to the upstream in use")
        await self._until(lambda: self._count_open() == self._count_idle(), "connections at the upstream")
        await self._hang_up()
        await self._until(lambda: self._held() <= self._before, "tasks and descriptors")
        assert read_sample(self._proxy, "trimtab_fail_open_total") == 0

    def _count_open(self) -> int:
        return sum(len(upstream.open) for upstream in self._upstreams)

    def _count_idle(self) -> int:
        connector = self._proxy.services.client._session.connector
        ports = {URL(upstream.url).port for upstream in self._upstreams}
        kept = [one for key, pool in connector._conns.items() if key.port in ports for one, _ in pool]
        return sum(one.is_connected() for one in kept)

    async def _hang_up(self) -> None:
        """End the idle connections, which the proxy may keep."""
        for upstream in self._upstreams:
            upstream.hang_up()
        await self._until(lambda: self._count_open() == 0 == self._count_idle(), "idle connections")

    def _held(self) -> set[str]:
        """The tasks, summary calls and descriptors, as numbered names."""
        under_way = self._proxy.services.summaries._under_way
        held = {
            "task": len(asyncio.all_tasks()),
            "call": len(under_way),
            "descriptor": len(list(Path("/proc/self/fd").iterdir())),
        }
        return {f"{kind} {number}" for kind, size in held.items() for number in range(size)}

    async def _until(self, is_so: Any, what: str) -> None:
        """Wait until the condition is true; fail after CALM_SECONDS."""
        try:
            async with asyncio.timeout(CALM_SECONDS):
                while not is_so():  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0.001)
        except TimeoutError as error:
            message = f"{what}: {sorted(self._held() - (self._before or set()))} too many; {[*asyncio.all_tasks()]}"
            raise AssertionError(message) from error
