"""trimtab in this process sends what the proxy sends, by each price list."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bench.material.workload import Session, make_sessions
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.lists.check import compare, compare_sent
from bench.sessions.lists.contestants import Setting, send_in_process, send_inside
from bench.sessions.lists.gaps import Gaps, find_moments
from bench.sessions.lists.prices import PriceList, load_lists
from bench.sessions.report import Window

WINDOW = Window(16_000, 2000)


@pytest.fixture(scope="module")
def session() -> Session:
    made = make_sessions()[2]
    return replace(made, stops=made.stops[:40])  # the last test shows that there are cuts


@pytest.fixture
def setting(session: Session) -> Setting:
    return Setting((LongestPrefix(),), {session.id: find_moments(session, Gaps.NONE)}, 700, Path("nowhere"))


def find(name: str) -> PriceList:
    return load_lists(name, date(2026, 11, 23))[0]


def test_both_ways_send_the_same(session: Session, setting: Setting) -> None:
    same, total = compare([session], WINDOW, find("groq"), setting)
    assert same == total == len(session.stops)


def test_both_ways_cut_at_a_cold_cache(session: Session, setting: Setting) -> None:
    """Each silence is longer than the cache of this list lives."""
    silent = replace(setting, moments={session.id: [400.0 * turn for turn in range(len(session.stops))]})
    same, total = compare([session], WINDOW, find("opus"), silent)
    assert same == total == len(session.stops)
    always, never = (
        send_inside(session, WINDOW, find("opus"), replace(silent, is_cold=cold)) for cold in (True, False)
    )
    assert not all(compare_sent(always, never))


def test_the_comparison_finds_what_differs(session: Session, setting: Setting) -> None:
    here = send_inside(session, WINDOW, find("groq"), setting)
    other = send_in_process("nothing", session, WINDOW, setting.kind)
    assert not all(compare_sent(here, other))


def test_prices_change_what_is_sent(session: Session, setting: Setting) -> None:
    """So trimtab must run for each list."""
    cheap, dear = (send_inside(session, WINDOW, find(name), setting) for name in ("deepseek", "groq"))
    assert not all(compare_sent(cheap, dear))
