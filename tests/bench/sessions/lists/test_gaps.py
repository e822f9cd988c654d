"""Idle gaps between requests: as published, as recorded, or none."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.material.workload import Session, encode
from bench.sessions.lists.gaps import (
    LONG_AFTER_TOOL,
    LONG_AFTER_USER,
    LONG_SECONDS,
    TURN_SECONDS,
    Gaps,
    count_long,
    draw_gap,
    find_moments,
)

TURNS = 400
DRAWS = 20_000


def make_session(role: str, **more: float) -> Session:
    """A session in which each answer is followed by a message of this role."""
    answer, other = {"role": "assistant", "content": "x"}, {"role": role, "content": "y"}
    messages = [{"role": "user", "content": "task"}, *(one for _ in range(TURNS) for one in (answer, other))]
    timed = [{**one, **{key: place * step for key, step in more.items()}} for place, one in enumerate(messages)]
    return encode(role, {"messages": timed})


def test_without_gaps_nothing_expires() -> None:
    moments = find_moments(make_session("user"), Gaps.NONE)
    assert moments[:3] == (0.0, TURN_SECONDS, 2 * TURN_SECONDS)
    assert count_long(moments) == 0


def test_people_wait_longer_than_tools() -> None:
    """Of 400 gaps, the published share is long, give or take three standard deviations."""
    long = {role: count_long(find_moments(make_session(role), Gaps.PUBLISHED)) for role in ("user", "tool")}
    assert long["user"] == pytest.approx(TURNS * LONG_AFTER_USER, abs=29)
    assert long["tool"] == pytest.approx(TURNS * LONG_AFTER_TOOL, abs=5)


def test_the_same_seed_has_the_same_gaps() -> None:
    session = make_session("user")
    assert find_moments(session, Gaps.PUBLISHED, 1) == find_moments(session, Gaps.PUBLISHED, 1)
    assert find_moments(session, Gaps.PUBLISHED, 1) != find_moments(session, Gaps.PUBLISHED, 2)


@given(st.sampled_from(list(Gaps)[:2]), st.integers(0, 5))
def test_each_request_has_a_time_and_time_never_goes_back(gaps: Gaps, seed: int) -> None:
    session = make_session("tool")
    moments = find_moments(session, gaps, seed)
    assert len(moments) == len(session.stops)
    assert all(later - earlier >= TURN_SECONDS * 0.999 for earlier, later in pairwise(moments))


def test_a_longer_session_has_the_gaps_of_the_shorter() -> None:
    longer = make_session("user")
    shorter = Session(longer.id, longer.messages, longer.tools, longer.stops[:20])
    assert find_moments(longer, Gaps.PUBLISHED)[:20] == find_moments(shorter, Gaps.PUBLISHED)


def test_the_tail_of_long_gaps() -> None:
    """As TAIL_EXPONENT says: half of those over five minutes are over twenty."""
    random = Random(0)  # noqa: S311 - a simulation
    drawn = [draw_gap(random, LONG_AFTER_USER) for _ in range(DRAWS)]
    long = [gap for gap in drawn if gap > LONG_SECONDS]
    assert len(long) / DRAWS == pytest.approx(LONG_AFTER_USER, abs=0.01)
    assert sum(gap > 4 * LONG_SECONDS for gap in long) / len(long) == pytest.approx(0.5, abs=0.02)


def test_recorded_times_are_used() -> None:
    moments = find_moments(make_session("tool", timestamp=500.0), Gaps.RECORDED)
    assert moments[1] - moments[0] == pytest.approx(1000.0)


def test_recordings_without_times_say_so() -> None:
    with pytest.raises(LookupError, match="no time"):
        find_moments(make_session("tool"), Gaps.RECORDED)
