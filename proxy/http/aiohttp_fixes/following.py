"""Takes a response's body in the callback that receives it, without waking a task.

Law: each byte is taken once, in order. Nothing is taken after `take` has refused, or after an end or an error; the
caller reads on from there as if there had been no follower.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

Take = Callable[[bytes], bool]
"""Takes the next bytes of a body. Returns whether it can take more at once. It may raise ConnectionError."""


class FollowedProtocol(ResponseHandler):
    """A connection of aiohttp that may have a follower, which it notifies when something arrives."""

    follower: "Follower | None" = None


class Follower:
    """Takes a body as it arrives.

    over: done when the follower takes no more; holds the ConnectionError that `take` raised, if it did.
    """

    __slots__ = ("_content", "_is_looking", "_protocol", "_take", "over")

    def __init__(self, protocol: FollowedProtocol, content: aiohttp.StreamReader, take: Take) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = protocol
        self._content = content
        self._take = take
        self._is_looking = False

    def look(self) -> None:
        """Take what has arrived; called when bytes arrived or the connection failed."""
        if self._is_looking or self.over.done():  # reading may call this again: aiohttp then parses what it put off
            return
        self._is_looking = True
        content: Any = self._content
        takes_more, is_sound = True, False
        try:
            # aiohttp's public methods for this take eight calls for each piece.
            while takes_more and content._exception is None and (pieces := content._buffer):  # noqa: SLF001
                takes_more = self._take(content._read_nowait_chunk(-1) if len(pieces) == 1 else content.read_nowait())  # noqa: SLF001
            is_sound = True
        except ConnectionError as error:
            self.leave()
            self.over.set_exception(error)
        finally:
            self._is_looking = False
            if not is_sound and not self.over.done():
                self.leave()
                self.over.cancel()  # `take` failed unexpectedly; without this the caller would wait forever
        if is_sound and (not takes_more or content._eof or content._exception is not None):  # noqa: SLF001
            self.leave()
            self.over.set_result(None)

    def leave(self) -> None:
        """Detach from the connection, which may serve another request from now on."""
        if self._protocol.follower is self:
            self._protocol.follower = None


async def follow(answer: aiohttp.ClientResponse, take: Take) -> None:
    """Give a body to `take` as it arrives, until `take` refuses more, the body ends or the connection fails.

    No task is woken for a piece, because that would cost as much as passing the piece on. Raises what `take` raises.
    The connection's read timeout still applies.
    """
    protocol = None if answer.connection is None else answer.connection.protocol
    if not isinstance(protocol, FollowedProtocol):
        return
    follower = protocol.follower = Follower(protocol, answer.content, take)
    try:
        follower.look()
        await follower.over
    finally:
        follower.leave()
