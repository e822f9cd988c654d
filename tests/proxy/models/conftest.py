"""Processes that learn facts about models, and their clock."""

from collections.abc import AsyncIterator

import pytest
from support.model_learning import Clock, Start, run_processes


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def start(clock: Clock) -> AsyncIterator[Start]:
    """Start processes on a store that they share, unless they are given another."""
    async with run_processes(clock) as start:
        yield start
