"""An upstream that misbehaves, and no word of it from the libraries."""

from collections.abc import AsyncIterator, Iterator

import pytest
from upstreams.faulty import FaultyUpstream, run_faulty_upstream


@pytest.fixture
async def raw() -> AsyncIterator[FaultyUpstream]:
    """The upstream that misbehaves."""
    async with run_faulty_upstream() as upstream:
        yield upstream


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No fault surprises a library, and no task's error goes unseen."""
    yield
    assert not [record.message for record in caplog.records if record.levelname in {"WARNING", "ERROR", "CRITICAL"}]
