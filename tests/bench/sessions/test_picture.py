"""The picture of a session's window in the README."""

from bench.sessions.picture import draw
from bench.sessions.window import PICTURE, read_series

SVG = "{http://www.w3.org/2000/svg}"
MAX_BYTES = 30_000
"""Chosen: small enough to load at once."""


def test_the_picture_is_drawn_from_the_recorded_series() -> None:
    """A new run draws the picture again. It must not be edited by hand."""
    assert PICTURE.read_text(encoding="utf-8") == draw(read_series())
    assert PICTURE.stat().st_size < MAX_BYTES
