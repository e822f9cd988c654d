"""The stages of one request without a socket."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from support.journeys import MakeStages, Stages, run_stages

from trimtab.proxy.compaction.pool import Compactors


@pytest.fixture
async def make_stages(compactors: Compactors) -> AsyncIterator[MakeStages]:
    """A function that makes the services of stages, with `dotted.key=value` settings."""
    async with AsyncExitStack() as stack:

        async def make(*settings: str) -> Stages:
            return await stack.enter_async_context(run_stages(compactors, *settings))

        yield make
