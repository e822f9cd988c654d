"""An upstream that misbehaves, and a check that no library logs a warning about it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from upstreams.faulty import FaultyUpstream, run_faulty_upstream


@pytest.fixture
async def raw() -> AsyncIterator[FaultyUpstream]:
    async with run_faulty_upstream() as upstream:
        yield upstream


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No library logs a warning or an error, and no task's exception goes unnoticed."""
    yield
    assert not [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR", "CRITICAL"}]
