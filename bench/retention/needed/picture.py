"""Draws what sessions cost against what they still know, for the README: our economies as a line, the others as points.

    python -m bench.retention.needed.picture [--window 64000] [--results FILE] [--svg FILE]

Law: every figure is one of the results' file, which `python -m bench.retention.needed --json FILE` has written.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from bench.retention.needed.rows import find_economy

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results" / "needed.json"
PICTURE = ROOT / "docs" / "assets" / "cost-and-memory.svg"
WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 42, 48
CHAR, LINE, GAP = 7.2, 14, 9
"""Of a letter, a line and the space beside a mark, in pixels. Chosen: for the font below, rather too wide."""
ECONOMIES = ("careful", "balanced", "frugal")
NAMES = {"window": "sliding window", "mask": "masked results", "head-tail": "head and tail"}
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a }
  .title { font-weight: 600; font-size: 15px; fill: #24292f }
  .grid { stroke: #8c959f; stroke-opacity: .25 }
  .ours { fill: none; stroke: #0969da; stroke-width: 2.5; stroke-linejoin: round }
  .our { fill: #0969da } .is-ours { fill: #0969da; font-weight: 600 }
  .other { fill: #bc4c00 } .end { text-anchor: end } .middle { text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc }
    .ours { stroke: #58a6ff } .our, .is-ours { fill: #58a6ff } .other { fill: #f0883e }
  }
"""


class Mark(NamedTuple):
    """A contestant in the picture: cost as a share of doing nothing, and needed kept in per cent."""

    name: str
    cost: float
    kept: float
    is_ours: bool


class Scale(NamedTuple):
    """From the least to the greatest value, in steps, to pixels from `start` to `stop`."""

    least: float
    greatest: float
    step: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.least) / (self.greatest - self.least) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """The values at which lines are drawn."""
        number = round((self.greatest - self.least) / self.step)
        return [self.least + index * self.step for index in range(number + 1)]


class Box(NamedTuple):
    """A rectangle that is taken."""

    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: "Box") -> bool:
        """Whether the two have a point in common."""
        is_beside = self.right < other.left or other.right < self.left
        return not (is_beside or self.bottom < other.top or other.bottom < self.top)


def list_marks(rows: Sequence[Mapping[str, Any]], window: int) -> list[Mark]:
    """The marks of one window: ours first, the economy that keeps most first; without doing nothing and equal sizes."""
    found: dict[str, Mark] = {}
    for row in rows:
        is_ours = row["contestant"] == "trimtab"
        economy = find_economy(row["settings"])
        is_shown = row["window_tokens"] == window and row["size"] is None and row["contestant"] != "nothing"
        if not is_shown or row["cost"] is None or row["kept"] is None or (is_ours and row["summariser"] != "canned"):
            continue
        if is_ours and (economy not in ECONOMIES or len(row["settings"]) > 1):
            continue
        name = f"trimtab, {economy}" if is_ours else NAMES.get(row["contestant"], row["contestant"].replace("-", " "))
        found[name] = Mark(name, row["cost"], 100 * row["kept"], is_ours)
    return sorted(found.values(), key=lambda mark: (not mark.is_ours, -mark.kept))


def draw(marks: Sequence[Mark], window: int) -> str:
    """The picture as SVG."""
    across, up = _make_scales(marks)
    title = f"What sessions cost, and what they still know, at a window of {window:,} tokens"
    told = "; ".join(f"{mark.name} {mark.cost:.2f}, {mark.kept:.1f} %" for mark in marks)
    ours = [mark for mark in marks if mark.is_ours]
    line = "L".join(f"{across.at(mark.cost):.1f} {up.at(mark.kept):.1f}" for mark in ours)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
            ' aria-labelledby="title desc">'
        ),
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">Cost as a share of sending everything, needed identifiers kept: {escape(told)}.</desc>',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
        *_draw_axes(across, up),
        *([f'<path class="ours" d="M{line}"/>'] if ours else []),
        *(_draw_mark(mark, across, up) for mark in marks),
        *_draw_names(marks, across, up),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _make_scales(marks: Sequence[Mark]) -> tuple[Scale, Scale]:
    """Costs from 0 on; shares from a round number below the least one to 100."""
    dearest, least = max(mark.cost for mark in marks), min(mark.kept for mark in marks)
    step = next(step for step in (1, 2, 5, 10, 25) if 100 - least <= 6 * step)
    across = Scale(0, math.ceil(max(dearest, 0.5) * 10 + 1e-9) / 10, 0.1 if dearest <= 1 else 0.2, LEFT, WIDTH - RIGHT)
    across = across._replace(greatest=math.ceil(across.greatest / across.step - 1e-9) * across.step)
    return across, Scale(math.floor(least / step) * step, 100, step, HEIGHT - BOTTOM, TOP)


def _draw_axes(across: Scale, up: Scale) -> Iterator[str]:
    for value in up.ticks():
        y = up.at(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{value:g} %</text>'
    for value in across.ticks():
        yield f'<text class="middle" x="{across.at(value):.1f}" y="{HEIGHT - BOTTOM + 18}">{value:.1f}</text>'
    middle, told = (LEFT + WIDTH - RIGHT) / 2, "cost as a share of sending everything; up: needed identifiers kept"
    yield f'<text class="middle" x="{middle:.0f}" y="{HEIGHT - 10}">{told}</text>'


def _draw_mark(mark: Mark, across: Scale, up: Scale) -> str:
    x, y = across.at(mark.cost), up.at(mark.kept)
    if mark.is_ours:
        return f'<circle class="our" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    return f'<rect class="other" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'


def _draw_names(marks: Sequence[Mark], across: Scale, up: Scale) -> Iterator[str]:
    """Each name beside its mark, in the first place that covers no other mark or name."""
    places = [(across.at(mark.cost), up.at(mark.kept)) for mark in marks]
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for mark, (x, y) in zip(marks, places, strict=True):
        width = CHAR * len(mark.name)
        right, left, above, below = x + GAP, x - GAP - width, y - GAP - LINE / 2, y + GAP + LINE / 2
        near = [(right, y), (left, y), (x - width / 2, above), (x - width / 2, below)]
        near += [(beside, other) for beside in (right, left) for other in (y + LINE, y - LINE)]
        boxes = [Box(left, top - LINE / 2, left + width, top + LINE / 2) for left, top in near]
        box = next((one for one in boxes if _is_free(one, taken)), boxes[0])
        taken.append(box)
        name = ' class="is-ours"' if mark.is_ours else ""
        yield f'<text{name} x="{box.left:.1f}" y="{box.top + 11:.1f}">{escape(mark.name)}</text>'


def _is_free(box: Box, taken: Sequence[Box]) -> bool:
    is_inside = box.left >= LEFT and box.right <= WIDTH and box.top >= TOP - LINE and box.bottom <= HEIGHT - BOTTOM
    return is_inside and not any(box.covers(one) for one in taken)


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=64_000, help="the window of the results that are drawn")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the results")
    parser.add_argument("--svg", type=Path, default=PICTURE, help="the picture")
    arguments = parser.parse_args()
    marks = list_marks(orjson.loads(arguments.results.read_bytes()), arguments.window)
    if not marks:
        message = f"{arguments.results} has no row at a window of {arguments.window}"
        raise SystemExit(message)
    arguments.svg.write_text(draw(marks, arguments.window), "utf-8")
    for mark in marks:
        print(f"{mark.name}: cost {mark.cost:.3f}, kept {mark.kept:.1f} %")


if __name__ == "__main__":
    main()
