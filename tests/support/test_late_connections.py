"""A test's server leaves no connection open, however late the connection was made."""

import asyncio
import gc
import ssl
import warnings
from pathlib import Path

import pytest
from support.authority import Authority
from upstreams.sockets import listen


async def _hold(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _leave(turns: int, server_side: ssl.SSLContext | None, client_side: ssl.SSLContext | None) -> None:
    """End the server while a client connects, after some turns of the event loop."""
    async with listen(_hold, server_side) as address:
        host, _, port = address.partition(":")
        connecting = asyncio.ensure_future(asyncio.open_connection(host, int(port), ssl=client_side))
        for _ in range(turns):
            await asyncio.sleep(0)
    connecting.cancel()
    for connected in await asyncio.gather(connecting, return_exceptions=True):
        if isinstance(connected, tuple):
            connected[1].close()


def _warnings_of_leaving(turns: int, sides) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(_leave(turns, *sides))
        gc.collect()
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_made_while_its_server_ends_is_closed(tls, tmp_path: Path) -> None:
    """It may wait to be accepted, for its handshake, or for the function that serves it."""
    sides = (None, None)
    if tls:
        authority = Authority(tmp_path)
        sides = (authority.serve("127.0.0.1"), ssl.create_default_context(cafile=authority.ca_file))

    assert [_warnings_of_leaving(turns, sides) for turns in range(12)] == [[]] * 12
