"""The picture for the README: what is in it, and that no name covers another."""

import re
import xml.etree.ElementTree as ET
from typing import Any

from bench.retention.needed.picture import draw, list_marks

SVG = "{http://www.w3.org/2000/svg}"


def _row(contestant: str, cost: float, kept: float, *settings: str, **more: Any) -> dict[str, Any]:
    summariser = "canned" if contestant == "trimtab" else ""
    row = {"contestant": contestant, "cost": cost, "kept": kept, "settings": list(settings), "summariser": summariser}
    return {**row, "window_tokens": 64_000, "size": None, **more}


ROWS = [
    _row("trimtab", 0.47, 0.983),
    _row("trimtab", 0.6, 0.991, "economy=careful"),
    _row("trimtab", 0.4, 0.97, "economy=frugal"),
    _row("trimtab", 0.1, 0.2, summariser="words"),
    _row("window", 1.5, 0.93),
    _row("mask", 1.48, 0.931),
    _row("mask", 0.5, 0.8, size=9),
    _row("nothing", 1.0, 1.0),
    _row("window", 0.3, 0.5, window_tokens=32_000),
]


def test_ours_are_a_line_and_the_others_points() -> None:
    """Of one window; without equal sizes, other summarisers and doing nothing."""
    marks = list_marks(ROWS, 64_000)
    ours = [f"trimtab, {economy}" for economy in ("careful", "balanced", "frugal")]
    assert [mark.name for mark in marks] == [*ours, "masked results", "sliding window"]
    tree = ET.fromstring(draw(marks, 64_000))  # noqa: S314 - written here
    (line,) = [path for path in tree.iter(f"{SVG}path") if path.get("class") == "ours"]
    assert len(re.split("[ML]", line.get("d") or "")) == 4
    assert len(list(tree.iter(f"{SVG}circle"))) == 3
    assert len(list(tree.iter(f"{SVG}rect"))) == 2


def test_names_of_neighbours_stand_apart() -> None:
    """Also at the right edge."""
    marks = list_marks(ROWS, 64_000)
    texts = {one.text: one for one in ET.fromstring(draw(marks, 64_000)).iter(f"{SVG}text")}  # noqa: S314 - the same
    places = [(float(texts[mark.name].get("x") or 0), float(texts[mark.name].get("y") or 0)) for mark in marks]
    for number, (x, y) in enumerate(places):
        for other_x, other_y in places[:number]:
            assert abs(x - other_x) > 60 or abs(y - other_y) > 12
        assert x + 7 * len(marks[number].name) < 730
