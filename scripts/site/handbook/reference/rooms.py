"""The drawing of the rooms: a row for each layer of the import contracts, above those that it may import."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

SETTINGS = Path(__file__).resolve().parents[4] / "pyproject.toml"
WIDTH, ROW, BOX, GAP = 330, 44, 30, 10  # pixels: of a column; the heights of a row and of a box; between two boxes
TOP, LEFT = 64, 24
STYLE = """\
  <style>
    text { font: 13px system-ui, sans-serif; fill: #24292f; text-anchor: middle; }
    .title { font-weight: 600; font-size: 15px; }
    .note { font-size: 12px; }
    rect { fill: #ddf4ff; stroke: #57606a; }
    .core { fill: #c9ebd1; }
    path { stroke: #57606a; stroke-width: 2; fill: none; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      rect { fill: #1c3a54; stroke: #8b949e; }
      .core { fill: #1f5130; }
      path { stroke: #8b949e; }
    }
  </style>"""


def list_layers(package: str) -> list[list[str]]:
    """The rooms of a package, upper layers first; those of one layer do not import each other."""
    contracts = tomllib.loads(SETTINGS.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == [f"trimtab.{package}"])
    return [layer.split(" | ") for layer in layers]


def write() -> str:
    shell, core = list_layers("proxy"), list_layers("rules")
    width, height = 2 * (LEFT + WIDTH) + 60, TOP + ROW * max(len(shell), len(core)) + 40
    middle = width // 2
    note = "A room may import those below it, and none on its own row."
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        '  <title id="title">The rooms of proxy and of rules: each may import those below it</title>',
        STYLE,
        *_draw("proxy, the shell", shell, LEFT, ""),
        *_draw("rules, the core", core, LEFT + WIDTH + 60, "core"),
        f'  <text class="note" x="{middle}" y="{TOP + 48}">imports</text>',
        f'  <path d="M {middle - 22} {TOP + 60} h 44 m -10 -6 l 10 6 l -10 6"/>',
        f'  <text class="note" x="{middle}" y="{height - 14}">{note}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _draw(title: str, layers: list[list[str]], left: int, kind: str) -> Iterator[str]:
    yield f'  <text class="title" x="{left + WIDTH // 2}" y="36">{title}</text>'
    for number, rooms in enumerate(layers):
        width, top = (WIDTH - GAP * (len(rooms) - 1)) // len(rooms), TOP + ROW * number
        for place, room in enumerate(rooms):
            x = left + place * (width + GAP)
            yield f'  <rect class="{kind}" x="{x}" y="{top}" width="{width}" height="{BOX}" rx="4"/>'
            yield f'  <text x="{x + width // 2}" y="{top + 20}">{room}</text>'
