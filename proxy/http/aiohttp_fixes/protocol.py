"""Connections to upstreams.

Law: no answer is waited for that can no longer come, and none for longer than is configured.
"""

import asyncio

import aiohttp
from aiohttp.client_proto import ResponseHandler


class UpstreamProtocol(ResponseHandler):
    """A connection to an upstream.

    aiohttp starts a timer with each piece that is read. Here a piece moves a deadline, and one timer, which outlives
    requests, looks after it: so the time without a byte is as long as ever, and costs next to nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._deadline = self._fires_at = 0.0

    @property
    def should_close(self) -> bool:
        """As aiohttp's; a connection is not kept whose upstream has answered before it took the request."""
        return self._paused or super().should_close

    def resume_writing(self) -> None:
        """The upstream takes the rest of a request: from now on it is waited for."""
        super().resume_writing()
        self.start_timeout()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - as aiohttp's
        """As aiohttp's, which does not look whether reading has paused at all."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        """As aiohttp's; a body that is not whole then breaks off.

        aiohttp ends the connection over a chunk that cannot be read, and leaves the body's reader waiting for ever.
        """
        body = self._payload
        super().connection_lost(exc)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the answer cannot be read further"))
        if self._closed is not None and not self._closed.cancelled():
            self._closed.exception()  # an end that nobody asks about is no fault

    def _reschedule_timeout(self) -> None:
        if not self._read_timeout:
            self._drop_timeout()
            return
        self._deadline = self._loop.time() + self._read_timeout
        if self._read_timeout_handle is None or self._deadline < self._fires_at:
            self._look_at(self._deadline)

    def _drop_timeout(self) -> None:
        self._deadline = 0.0
        if self.transport is None or self._connection_lost_called:
            super()._drop_timeout()

    def _look_at(self, seconds: float) -> None:
        super()._drop_timeout()
        self._fires_at = seconds
        self._read_timeout_handle = self._loop.call_at(seconds, self._look)

    def _look(self) -> None:
        self._read_timeout_handle = None
        if not self._deadline:
            return
        if self._loop.time() < self._deadline:
            self._look_at(self._deadline)
        else:
            self._on_read_timeout()
