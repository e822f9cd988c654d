"""An upstream that keeps the exact bytes that it receives."""

from collections.abc import AsyncIterator

import pytest
from upstreams.raw import RawUpstream, run_raw_upstream


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with run_raw_upstream() as running:
        yield running
