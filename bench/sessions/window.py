"""One session's window over its requests, with and without trimtab: records the run, and draws the README's picture.

    python -m bench.sessions.window                     # replays the session, writes the series and the picture
    python -m bench.sessions.window --draw-only         # draws the picture again from the recorded series

The session is a recorded one out of ../shared/data/conversations. Only its name and its token counts are written.
"""

import argparse
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import orjson
import uvloop

from bench.figures import describe_machine
from bench.material.workload import MODEL, Session, load_sessions
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Call, Prices, SessionLedger, price, turns
from bench.sessions.lists.prices import to_settings
from bench.sessions.picture import WindowRun, draw
from bench.sessions.prompts import read_fixed, read_part
from bench.sessions.replaying.proxies import OWN_STORE, make_trimtab
from bench.sessions.replaying.replay import ReplayOptions, replay_through
from bench.sessions.report import Window

ROOT = Path(__file__).parents[2]
SERIES = ROOT / "bench" / "results" / "window.json"
PICTURE = ROOT / "docs" / "assets" / "window.svg"
SESSION = "21-mini-chat-dev-rerun-pylint-dev--astro"
ABOUT = "mini-SWE-agent works on pylint-dev/astroid"
"""Chosen: the longest recorded session that is not made of several others; it grows to three times the window."""
WINDOW = Window(tokens=32_000, reserve_tokens=4_000)
"""Chosen: the second of the windows that `bench.sessions.run` compares; the session is cut several times in it."""
COMMAND = "python -m bench.sessions.window"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw-only", action="store_true", help="do not replay; draw from the recorded series")
    arguments = parser.parse_args()
    if not arguments.draw_only:
        run = record(find_session(SESSION))
        SERIES.write_bytes(orjson.dumps(run, option=orjson.OPT_INDENT_2) + b"\n")
    PICTURE.write_text(draw(read_series()), encoding="utf-8")


def read_series() -> WindowRun:
    """The run that is recorded in `bench/results`."""
    return WindowRun(**orjson.loads(SERIES.read_bytes()))


def find_session(name: str) -> Session:
    """The recorded session of this name; ends the program if there is none."""
    for session in load_sessions([]):
        if session.id == name:
            return session
    message = f"no recorded session has the name {name!r}"
    raise SystemExit(message)


def record(session: Session) -> WindowRun:
    """Replay a session through `trimtab serve` at its defaults; only window, reserve and store are set."""
    rules = LongestPrefix()
    settings = (
        f"defaults.context_window={WINDOW.tokens}",
        f"defaults.completion_reserve={WINDOW.reserve_tokens}",
        f"store={OWN_STORE}",
        *to_settings(Prices()),  # the upstream is local, so no price list would be found for it
    )
    (replayed,) = uvloop.run(replay_through(make_trimtab(settings), [session], ReplayOptions(rules)))
    without = _send_everything(session, rules)
    sent = list(turns(replayed.calls))
    return WindowRun(
        session=session.id,
        about=ABOUT,
        date=datetime.now(tz=UTC).date().isoformat(),
        machine=describe_machine(),
        command=COMMAND,
        window_tokens=WINDOW.tokens,
        reserve_tokens=WINDOW.reserve_tokens,
        without_tokens=[call.prompt_tokens for call in turns(without)],
        sent_tokens=[call.prompt_tokens for call in sent],
        cuts=find_cuts(sent),
        cost=round(price(replayed.calls, Prices()) / price(without, Prices()), 3),
    )


def find_cuts(sent: list[Call]) -> list[int]:
    """Numbers, from 1 on, of the requests that do not begin with the whole request before them."""
    return [
        number
        for number, (before, after) in enumerate(pairwise(sent), start=2)
        if after.kept_tokens is not None and after.kept_tokens < before.prompt_tokens
    ]


def _send_everything(session: Session, rules: LongestPrefix) -> list[Call]:
    ledger = SessionLedger(rules)
    fixed = read_fixed(MODEL, session.tools)
    for stop in session.stops:
        ledger.add_turn((fixed, *map(read_part, session.messages[:stop])))
    return ledger.calls


if __name__ == "__main__":
    main()
