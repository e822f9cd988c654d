"""The goals of the issue, compared with the figures of a row."""

from dataclasses import replace

from bench.material.workload import make_sessions
from bench.retention.needed.cases import TRIMTAB, Case
from bench.retention.needed.measure import measure
from bench.retention.needed.rows import Row, judge, make_row
from bench.sessions.report import Window

WINDOW = Window(32_000, 4000)


def make() -> Row:
    sessions = make_sessions()[:2]
    nothing = [measure(session, Case("nothing", WINDOW)) for session in sessions]
    return make_row(Case("nothing", WINDOW), nothing, nothing, sessions)


def test_doing_nothing_costs_what_doing_nothing_costs() -> None:
    row = make()
    assert row.smaller_cost == 1.0
    assert row.rereads == row.all_rereads == row.needed == 0


def test_goals_are_held_to_trimtab_with_the_note_that_says_nothing_alone() -> None:
    assert not list(judge(make()))


def test_a_goal_is_met_or_missed_by_the_economy_that_was_asked_for() -> None:
    row = replace(make(), contestant=TRIMTAB, summariser="canned", cost=0.30)
    assert "cost 0.300 <= 0.335: met" in list(judge(row))
    assert "cost 0.300 <= 0.28: MISSED" in list(judge(replace(row, settings=("economy=frugal",))))
    assert not list(judge(replace(row, settings=("economy=careful",))))
