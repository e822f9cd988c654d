"""An answer's body, taken by the callback that brings it.

Law: what comes is taken in its order, each byte once; and nothing is taken behind a refusal, an end or a fault: whoever
follows reads on from there as if nobody had followed.
"""

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp.client_proto import ResponseHandler

Take = Callable[[bytes], bool]
"""Takes the next bytes of a body; whether it takes more at once. It may raise ConnectionError."""


class FollowedProtocol(ResponseHandler):
    """A connection of aiohttp's, with a follower of the body that comes, if there is one: it is told to look."""

    follower: "Follower | None" = None


class Follower:
    """Takes a body as it comes. `over` is done when it no longer does; it holds the error that `take` has raised."""

    __slots__ = ("_content", "_is_looking", "_protocol", "_take", "over")

    def __init__(self, protocol: FollowedProtocol, content: aiohttp.StreamReader, take: Take) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = protocol
        self._content = content
        self._take = take
        self._is_looking = False

    def look(self) -> None:
        """Something has come, or there was a fault. Taking may bring more: aiohttp parses what it had put off."""
        if self._is_looking or self.over.done():
            return
        self._is_looking = True
        content = self._content
        takes_more, is_sound = True, False
        try:
            while takes_more and content.exception() is None and (chunk := content.read_nowait()):
                takes_more = self._take(chunk)
            is_sound = True
        except ConnectionError as error:
            self.leave()
            self.over.set_exception(error)
        finally:
            self._is_looking = False
            if not is_sound and not self.over.done():
                self.leave()
                self.over.cancel()  # a fault of ours: nobody waits for ever
        if is_sound and (not takes_more or content.is_eof() or content.exception() is not None):
            self.leave()
            self.over.set_result(None)

    def leave(self) -> None:
        """The connection may be another request's from now on."""
        if self._protocol.follower is self:
            self._protocol.follower = None


async def follow(answer: aiohttp.ClientResponse, take: Take) -> None:
    """Have a body taken as it comes, until `take` takes no more, or there is an end or a fault to be read.

    No task is woken for a piece: that costs as much as passing it on. Raises what `take` raises. An upstream that is
    silent is given up by the connection's own read timeout.
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
