"""The page of metrics, rendered for all of its readers together.

Law: a page is never older than the request for it. However many readers there are, one page is rendered a second.
"""

import asyncio
import time
from collections.abc import Callable

RENDER_SECONDS = 1.0
"""Shortest time between two renderings. Chosen: one takes up to a tenth of a second; scrapers come every 15 s."""


class MetricsPages:
    """The newest page. `render` makes one, in a thread: as OpenMetrics if it is called so."""

    def __init__(self, render: Callable[..., bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._clock = clock
        self._turn = asyncio.Lock()
        self._began_at = float("-inf")
        self._bodies: dict[bool, bytes] = {}

    async def read(self, *, as_open_metrics: bool = False) -> bytes:
        """A page that was rendered after this call. Readers that come within a second get the same one."""
        asked_at = self._clock()
        async with self._turn:
            if self._began_at < asked_at:
                await asyncio.sleep(self._began_at + RENDER_SECONDS - self._clock())
                self._began_at, self._bodies = self._clock(), {}
            if as_open_metrics not in self._bodies:
                self._bodies[as_open_metrics] = await asyncio.to_thread(self._render, as_open_metrics=as_open_metrics)
            return self._bodies[as_open_metrics]
