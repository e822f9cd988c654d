"""What is sent for a request: three cases."""

import pytest
from support.journeys import MakeStages, Stages, read, read_session

from trimtab.proxy.exchange.attempt import Attempt, Passed, Prepared, Refused

LONG = [{"role": "user", "content": "word " * 9000}]


async def _attempt(make_stages: MakeStages, *settings: str) -> list[Attempt]:
    stages: Stages = await make_stages("defaults.on_exceeded=error", *settings)
    return [await stages.attempt(request) for request in (read([{}]), read(LONG), read_session(3))]


@pytest.mark.parametrize("mode", ["enforce", "observe"])
async def test_each_case_knows_what_its_stages_found_out(mode: str, make_stages: MakeStages) -> None:
    attempts = await _attempt(make_stages, f"mode={mode}")

    assert attempts[0].outcome == "undecodable"
    assert [type(one) for one in attempts] == [Passed, Refused, Prepared]
    assert [one.call is not None for one in attempts] == [False, True, True]
    assert [one.compacted is not None for one in attempts] == [False, True, True]
    assert [one.body is not None for one in attempts] == [False, False, mode == "enforce"]
    assert [one.refusal is not None for one in attempts] == [False, mode == "enforce", False]


async def test_what_is_off_passes(make_stages: MakeStages) -> None:
    """Nothing is known of it, not even whether it can be decoded."""
    assert await _attempt(make_stages, "mode=off") == [Passed("off")] * 3
