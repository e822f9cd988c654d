"""Draws a session's window over its requests as an SVG.

Law: pure; the same run gives the same text. The picture is readable on a light and on a dark page, has no script and no
font of its own, and says in words (title, desc) what it shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 860, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 850, 40, 352
"""Edges of the plot in the picture's own units. Chosen: 860 wide, because GitHub shows a README at about that width."""
_TICK_TOKENS = 20_000
_TICK_REQUESTS = 25
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a }
  .title { font-weight: 600; font-size: 15px; fill: #24292f }
  .grid { stroke: #8c959f; stroke-opacity: .25 }
  .without, .beyond { fill: none; stroke: #bc4c00; stroke-width: 2 }
  .beyond { stroke-dasharray: 2 4 }
  .with { fill: none; stroke: #0969da; stroke-width: 2.5; stroke-linejoin: round }
  .limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 8 4 }
  .cut { stroke: #0969da; stroke-width: 1; stroke-dasharray: 2 2 }
  .dot { fill: #bc4c00 }
  .is-without { fill: #bc4c00 } .is-with { fill: #0969da } .is-limit { fill: #cf222e }
  .is-without, .is-with, .is-limit { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc }
    .without, .beyond { stroke: #f0883e } .with, .cut { stroke: #58a6ff } .limit { stroke: #ff7b72 }
    .dot, .is-without { fill: #f0883e } .is-with { fill: #58a6ff } .is-limit { fill: #ff7b72 }
  }
"""


@dataclass(frozen=True, slots=True)
class WindowRun:
    """A session's prompt tokens, request by request.

    `without_tokens` is what the client sent, `sent_tokens` what trimtab forwarded. `cuts` are numbers of requests, from
    1 on. `cost` is trimtab's cost for the session as a share of the cost without it, by `bench.sessions.ledger`.
    """

    session: str
    about: str
    date: str
    machine: str
    command: str
    window_tokens: int
    reserve_tokens: int
    without_tokens: list[int]
    sent_tokens: list[int]
    cuts: list[int]
    cost: float

    @property
    def limit_tokens(self) -> int:
        """The most tokens that a prompt may have."""
        return self.window_tokens - self.reserve_tokens

    @property
    def first_refused(self) -> int | None:
        """Number of the first request that is larger than the context window if nothing is cut."""
        return next((n for n, tokens in enumerate(self.without_tokens, 1) if tokens > self.window_tokens), None)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a request and a number of tokens are in the picture."""

    requests: int
    tokens: int

    def x(self, request: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (request - 1) / max(self.requests - 1, 1)

    def y(self, tokens: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * tokens / self.tokens

    def line(self, kind: str, tokens: list[int], first: int = 1) -> str:
        points = " ".join(f"{self.x(n):.1f},{self.y(value):.1f}" for n, value in enumerate(tokens, first))
        return f'<polyline class="{kind}" points="{points}"/>'


def draw(run: WindowRun) -> str:
    """The picture as the text of an SVG file."""
    ticks = -(-max(run.without_tokens) // _TICK_TOKENS)
    scale = _Scale(len(run.without_tokens), ticks * _TICK_TOKENS)
    parts = (*_draw_axes(scale), *_draw_without(run, scale), *_draw_limit(run, scale), *_draw_with(run, scale))
    return "\n".join((*_open(run), *parts, "</svg>", ""))


def describe(run: WindowRun) -> str:
    """What the picture shows, in words."""
    refused = f" From request {run.first_refused} on it does not fit." if run.first_refused else ""
    return (
        f"{len(run.without_tokens)} requests of a recorded session ({run.about}) with a context window of "
        f"{run.window_tokens:,} tokens. Without trimtab the prompt grows to {max(run.without_tokens):,} tokens."
        f"{refused} With trimtab it has at most {max(run.sent_tokens):,} tokens; the limit is {run.limit_tokens:,}. "
        f"Cuts: {len(run.cuts)}."
    )


def _open(run: WindowRun) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-labelledby="title desc">'
    )
    yield f'<title id="title">{_heading(run)}</title>'
    yield f'<desc id="desc">{escape(describe(run))}</desc>'
    yield f"<style>{_STYLE}</style>"
    yield _write(_LEFT, 22, _heading(run), "title")


def _heading(run: WindowRun) -> str:
    return escape(f"Prompt tokens of each request in one agent session, context window {run.window_tokens:,}")


def _draw_axes(scale: _Scale) -> Iterator[str]:
    for tokens in range(0, scale.tokens + 1, _TICK_TOKENS):
        y = scale.y(tokens)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
        yield _write(_LEFT - 8, y + 4, f"{tokens:,}", anchor="end")
    for request in (1, *range(_TICK_REQUESTS, scale.requests + 1, _TICK_REQUESTS)):
        yield _write(scale.x(request), _BOTTOM + 18, str(request), anchor="middle")
    yield _write((_LEFT + _RIGHT) / 2, _BOTTOM + 38, "request of the session", anchor="middle")


def _draw_without(run: WindowRun, scale: _Scale) -> Iterator[str]:
    """A solid line up to the context window, dots from there on: an upstream would refuse these requests."""
    refused = run.first_refused or len(run.without_tokens) + 1
    yield scale.line("without", run.without_tokens[:refused])
    if refused > len(run.without_tokens):
        return
    yield scale.line("beyond", run.without_tokens[refused - 1 :], refused)
    x, y = scale.x(refused), scale.y(run.without_tokens[refused - 1])
    yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    yield _write(x - 10, y - 26, f"request {refused} is larger than the window:", anchor="end")
    yield _write(x - 10, y - 10, "from here on the upstream refuses", anchor="end")
    middle = (refused + len(run.without_tokens)) // 2
    yield _write(
        scale.x(middle) - 12, scale.y(run.without_tokens[middle - 1]) - 8, "without trimtab", "is-without", "end"
    )


def _draw_limit(run: WindowRun, scale: _Scale) -> Iterator[str]:
    y = scale.y(run.limit_tokens)
    yield f'<path class="limit" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
    words = f"limit {run.limit_tokens:,} = window - {run.reserve_tokens:,} for the completion"
    yield _write(_RIGHT, y - 7, words, "is-limit", "end")


def _draw_with(run: WindowRun, scale: _Scale) -> Iterator[str]:
    for cut in run.cuts:
        x = (scale.x(cut - 1) + scale.x(cut)) / 2
        yield f'<path class="cut" d="M{x:.1f} {scale.y(run.sent_tokens[cut - 2]):.1f}V{_BOTTOM}"/>'
        yield _write(x, scale.y(run.sent_tokens[cut - 2]) - 6, "cut", anchor="middle")
    yield scale.line("with", run.sent_tokens)
    ends = (1, *run.cuts, len(run.sent_tokens) + 1)
    # Not in the first piece: there both lines are one.
    pieces = list(pairwise(ends))
    first, after = max(pieces[1:] or pieces, key=lambda pair: pair[1] - pair[0])
    yield _write(scale.x((first + after) / 2), _BOTTOM - 6, "with trimtab", "is-with", "middle")


def _write(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    marks = f' class="{kind}"' if kind else ""
    marks += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{marks}>{words}</text>'
