"""Idle gaps between requests: as published, as recorded, or none."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.material.workload import Session, encode
from bench.sessions.lists.gaps import (
    LONG_AFTER_TOOL,
    LONG_AFTER_USER,
    TURN_SECONDS,
    Gaps,
    count_long,
    find_moments,
)

TURNS = 400


def make_session(role: str, **more: float) -> Session:
    """A session in which each answer is followed by a message of this role."""
    answer, other = {"role": "assistant", "content": "x"}, {"role": role, "content": "y"}
    messages = [{"role": "user", "content": "task"}, *(one for _ in range(TURNS) for one in (answer, other))]
    timed = [{**one, **{key: place * step for key, step in more.items()}} for place, one in enumerate(messages)]
    return encode(role, {"messages": timed})


def test_people_wait_longer_than_tools() -> None:
    """Of 400 gaps, the published share is long, give or take three standard deviations."""
    long = {role: count_long(find_moments(make_session(role), Gaps.PUBLISHED)) for role in ("user", "tool")}
    assert long["user"] == pytest.approx(TURNS * LONG_AFTER_USER, abs=29)
    assert long["tool"] == pytest.approx(TURNS * LONG_AFTER_TOOL, abs=5)


@given(st.sampled_from(list(Gaps)[:2]), st.integers(0, 5))
def test_each_request_has_a_time_and_time_never_goes_back(gaps: Gaps, seed: int) -> None:
    session = make_session("tool")
    moments = find_moments(session, gaps, seed)
    assert len(moments) == len(session.stops)
    assert all(later - earlier >= TURN_SECONDS * 0.999 for earlier, later in pairwise(moments))


def test_recorded_times_are_used() -> None:
    moments = find_moments(make_session("tool", timestamp=500.0), Gaps.RECORDED)
    assert moments[1] - moments[0] == pytest.approx(1000.0)
