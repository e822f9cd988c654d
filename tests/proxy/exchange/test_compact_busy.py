"""A request for which no thread was free."""

import pytest
from support.client import SMALL
from support.journeys import MakeStages, read_session

from trimtab.proxy.exchange.compact import refuse_or_pass


@pytest.mark.parametrize(("steps", "passes"), [(1, True), (60, False)])
async def test_only_a_request_that_surely_needs_nothing_passes(steps: int, passes, make_stages: MakeStages) -> None:
    """A long one is refused, and the client may try again."""
    stages = await make_stages(*SMALL)
    call = await stages.prepare(read_session(steps))
    assert (refuse_or_pass(call) is None) is passes
