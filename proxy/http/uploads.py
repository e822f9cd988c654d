"""Request bodies as they arrive: none may come too slowly, nor may all of them together fill the memory.

Law: only time spent waiting for the client counts; an upstream that takes its time is none of the client's fault.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from proxy.http.errors import OverloadedError, SlowRequestError

MIN_BYTES_PER_SECOND = 500
"""On average, once the first `silence_seconds` are over. Source: Apache's mod_reqtimeout."""


@dataclass(slots=True)
class Uploads:
    """What all bodies of a proxy share: `left_bytes` may still be held, and a client may be silent for so long."""

    left_bytes: int
    silence_seconds: float
    _held_bytes: dict[int, int] = field(default_factory=dict)

    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises SlowRequestError."""
        loop = asyncio.get_running_loop()
        waited_seconds, received_bytes = 0.0, 0
        while True:
            allowed_seconds = self.silence_seconds + received_bytes / MIN_BYTES_PER_SECOND - waited_seconds
            started = loop.time()
            try:
                async with asyncio.timeout(min(allowed_seconds, self.silence_seconds)):
                    piece = await request.content.readany()
            except TimeoutError as error:
                message = "the rest of the request did not come in time (limits.client_silence_seconds)"
                raise SlowRequestError(message) from error
            if not piece:
                return
            waited_seconds += loop.time() - started
            received_bytes += len(piece)
            yield piece

    def hold(self, request: web.BaseRequest, size_bytes: int) -> None:
        """So many bytes of a request are kept until it is released. Raises OverloadedError."""
        if size_bytes > self.left_bytes:
            message = "too much text in flight (limits.max_held_bytes); try again"
            raise OverloadedError(message)
        self.left_bytes -= size_bytes
        self._held_bytes[id(request)] = self._held_bytes.get(id(request), 0) + size_bytes

    def release(self, request: web.BaseRequest) -> None:
        """The request has been served, or given up."""
        self.left_bytes += self._held_bytes.pop(id(request), 0)
