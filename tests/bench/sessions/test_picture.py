"""The picture of a session's window in the README."""

from dataclasses import replace
from xml.etree import ElementTree as ET

from bench.sessions.picture import WindowRun, describe, draw
from bench.sessions.window import PICTURE, read_series

RUN = WindowRun(
    session="1-small",
    about="an agent <at work>",
    date="2026-11-23",
    machine="",
    command="",
    window_tokens=8_000,
    reserve_tokens=2_000,
    without_tokens=[1_000, 5_000, 9_000, 12_000],
    sent_tokens=[1_000, 5_000, 2_000, 4_000],
    cuts=[3],
    cost=0.5,
)
SVG = "{http://www.w3.org/2000/svg}"
MAX_BYTES = 30_000
"""Chosen: small enough to load at once."""


def test_the_picture_is_drawn_from_the_recorded_series() -> None:
    """A new run draws the picture again. It must not be edited by hand."""
    assert PICTURE.read_text(encoding="utf-8") == draw(read_series())
    assert PICTURE.stat().st_size < MAX_BYTES


def test_it_has_words_for_those_who_do_not_see_it() -> None:
    """It has a title and a description, whatever the name of the session."""
    picture = ET.fromstring(draw(RUN))  # noqa: S314 - our own text
    assert picture.get("role") == "img"
    assert picture.find(f"{SVG}title").text
    assert picture.find(f"{SVG}desc").text == describe(RUN)
    assert RUN.about in describe(RUN)


def test_what_it_says_is_counted_in_the_series() -> None:
    """The first request that an upstream would refuse, the largest prompts, the cuts."""
    words = describe(RUN)
    assert RUN.first_refused == 3
    for number in ("4 requests", "12,000", "request 3", "8,000", "5,000", "Cuts: 1", "6,000"):
        assert number in words


def test_each_cut_and_each_request_is_drawn_once() -> None:
    """The line without trimtab has two pieces: one inside the window and one above it."""
    picture = ET.fromstring(draw(RUN))  # noqa: S314 - our own text
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts.count("cut") == len(RUN.cuts)
    lines = {line.get("class"): len(line.get("points").split()) for line in picture.iter(f"{SVG}polyline")}
    assert lines == {"without": 3, "beyond": 2, "with": 4}


def test_a_session_that_fits_has_no_piece_beyond_the_window() -> None:
    """The description does not mention refusals then."""
    run = replace(RUN, without_tokens=[1_000, 2_000], sent_tokens=[1_000, 2_000], cuts=[])
    assert 'class="beyond"' not in draw(run)
    assert "refuses" not in draw(run)
    assert "does not fit" not in describe(run)


def test_no_font_and_no_script_is_loaded() -> None:
    """Both colour schemes have their colours."""
    picture = draw(RUN)
    assert "url(" not in picture
    assert "<script" not in picture
    assert "prefers-color-scheme: dark" in picture
