"""An upstream that keeps the very bytes of what it is sent."""

from collections.abc import AsyncIterator

import pytest
from upstreams.raw import RawUpstream, run_raw_upstream


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    """The upstream, of bare sockets."""
    async with run_raw_upstream() as running:
        yield running
