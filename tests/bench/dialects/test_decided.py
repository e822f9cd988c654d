"""The same session in each dialect: one transcript, one counter, so the same decisions, cost and prefix."""

import pytest
from support.sessions import make_session, needs_data, read_rows, recorded_files

from bench.dialects.converted import DIALECTS, make_comparable
from bench.dialects.run import Compared, compare, make_rows
from bench.material.workload import encode
from bench.sessions.report import Window

SAMPLE = [
    ("mini_swe_agent", 21),
    ("openhands", 8),
    ("tau2_bench", 4),
    ("tau_bench", 1),
    ("crosswoz_zh", 0),
    ("short_toolcall_zh", 1),
]
"""Sessions of each kind: with tools and without, with long results and with users who talk, English and Chinese."""
WINDOW = Window(16_000, 2_000)
TOLERANCE = 0.02
"""Source: issue 19. Cost and prefix kept of a dialect differ from those of chat completions by at most this share."""


def check(compared: list[Compared]) -> set[str]:
    """The decisions are the same, nothing forwarded was invalid, and the figures agree. Returns what rules acted."""
    rows = list(make_rows(compared, WINDOW))
    assert [row.dialect for row in rows] == list(DIALECTS)
    assert {row.differing for row in rows} == {0}
    assert [one.problems for each in compared for one in each.replays.values() if one.problems] == []
    for row in rows:
        assert row.cost == pytest.approx(rows[0].cost, rel=TOLERANCE)
        assert row.kept == pytest.approx(rows[0].kept, rel=TOLERANCE)
    return {
        rule for each in compared for one in each.replays["messages"].decided for rules in one for rule in rules[:1]
    }


def test_a_session_is_decided_alike_in_each_dialect() -> None:
    """A generated session that is several windows long is cut."""
    session = make_comparable(encode("made", make_session(95, result_words=300)))
    assert "summarise" in check([compare(session, WINDOW)])


@needs_data
def test_recorded_sessions_are_decided_alike_in_each_dialect() -> None:
    """A sample; `python -m bench.dialects.run` does it with all of them."""
    files = {file.stem: list(read_rows(file)) for file in recorded_files("conversations")}
    sessions = [make_comparable(encode(f"{name}-{number}", files[name][number])) for name, number in SAMPLE]
    assert check([compare(session, WINDOW) for session in sessions]) >= {"tidy", "dedupe", "summarise"}
