"""A proxy with a relay in front of it that keeps what the client sends."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from support.wire_tap import WireTap, tap_wire


@pytest.fixture
async def start_tapped(start_proxy) -> AsyncIterator[Callable[..., Awaitable[WireTap]]]:
    """A function that starts a proxy with the settings of `start_proxy`. The relay's URL ends in /v1."""
    async with AsyncExitStack() as stack:

        async def start(*settings: str) -> WireTap:
            proxy = await start_proxy(*settings)
            return await stack.enter_async_context(tap_wire(f"{proxy.url}/v1"))

        yield start
