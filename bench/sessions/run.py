"""Measures what a session costs with trimtab and with the alternatives: whole sessions replayed, turn by turn.

    python -m bench.sessions.run --only nothing,trimtab --windows 32000:4000 --limit 20
    python -m bench.sessions.run --prices all --gaps published --windows 32000:4000 --limit 20

See README.md, "What do whole sessions cost?", for the results, how the cost is computed, and the limits of the method.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import orjson
import uvloop
from rich.console import Console

from bench.figures import describe_machine
from bench.material.workload import MODEL, Session, load_sessions
from bench.peers.environments import PEERS, MissingPeerError, find_program
from bench.sessions.baselines import IN_PROCESS, WINDOWLESS
from bench.sessions.caches.blocks import CAPACITY_TOKENS
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Prices, SessionLedger
from bench.sessions.libraries import LIBRARIES, run_library
from bench.sessions.lists.check import check_inside
from bench.sessions.lists.command import CACHES, OWN, run_lists
from bench.sessions.lists.gaps import Gaps
from bench.sessions.lists.prices import MODELS, to_settings
from bench.sessions.prompts import read_fixed, read_part
from bench.sessions.replaying.proxies import OWN_STORE, make_headroom, make_trimtab, run_redis
from bench.sessions.replaying.replay import Replayed, ReplayOptions, replay_through
from bench.sessions.report import Row, Run, Window, build_table, draw_plot, summarise

TRIMTAB = "trimtab"
CONTESTANTS = (*IN_PROCESS, *LIBRARIES, "headroom-cache", "headroom-token", TRIMTAB)
MODEL_NAMES = tuple(model.name for model in MODELS)
TABLE_WIDTH = 240


@dataclass(slots=True)
class Bench:
    """One run of the command: what is replayed, and how."""

    arguments: argparse.Namespace
    sessions: Sequence[Session]
    options: ReplayOptions
    prices: Prices
    _windowless: dict[str, Run] = field(default_factory=dict)

    def run(self, name: str, window: Window) -> Run:
        """Run a contestant at a window. Raises MissingPeerError."""
        if name in self._windowless:
            return self._windowless[name]
        started = time.perf_counter()
        replayed = tuple(self._replay(name, window))
        run = Run(self._label(name), replayed, time.perf_counter() - started)
        if name in WINDOWLESS:
            self._windowless[name] = run
        return run

    def _replay(self, name: str, window: Window) -> Sequence[Replayed]:
        if name in IN_PROCESS:
            return [self._replay_in_process(name, session, window) for session in self.sessions]
        if name in LIBRARIES:
            return run_library(name, self.arguments.peers, self.sessions, window.limit_tokens, self.options)
        if name == TRIMTAB:
            return self._replay_trimtab(window)
        start = make_headroom(find_program(self.arguments.peers, "headroom"), name.removeprefix("headroom-"))
        plain = ReplayOptions(self.options.rules, self.options.note_tokens, self.options.eager)
        return uvloop.run(replay_through(start, self.sessions, plain))

    def _replay_trimtab(self, window: Window) -> Sequence[Replayed]:
        """With an empty store each time: summaries that an earlier run has paid for must not be free."""
        with run_redis() if self.arguments.replicas else nullcontext(OWN_STORE) as store:
            own = (
                f"defaults.context_window={window.tokens}",
                f"defaults.completion_reserve={window.reserve_tokens}",
                f"store={store}",
                f"prices.input={self.prices.input}",
                f"prices.cached_input={self.prices.cached_input}",
                f"prices.output={self.prices.output}",
            )
            # The upstream is local, so no price list would be found for it.
            start = make_trimtab((*own, *to_settings(self.prices), *self.arguments.settings))
            return uvloop.run(replay_through(start, self.sessions, self.options))

    def _replay_in_process(self, name: str, session: Session, window: Window) -> Replayed:
        ledger = SessionLedger(self.options.rules)
        fixed = read_fixed(MODEL, session.tools)
        for messages in IN_PROCESS[name](session, window.limit_tokens):
            ledger.add_turn((fixed, *map(read_part, messages)))
        return Replayed(session, tuple(ledger.calls))

    def _label(self, name: str) -> str:
        given = vars(self.arguments)
        marks = [flag for flag in ("restart", "replicas", "failing_summaries", "eager") if given[flag]]
        return f"{name} ({', '.join(marks)})".replace("_", " ") if name == TRIMTAB and marks else name


def main() -> None:
    # So that a run that `timeout` ends still ends the proxies that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = parse_arguments()
    if arguments.prices:
        start_lists(arguments)
        return
    earlier = read_rows(arguments.beside) if arguments.beside else []
    rows = list(run_all(prepare(arguments), earlier))
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(list(map(asdict, rows)), option=orjson.OPT_INDENT_2))
    if arguments.plot:
        draw_plot(rows, arguments.plot)


def start_lists(arguments: argparse.Namespace) -> None:
    """Run by price lists instead of by one."""
    sessions, windows = pick(arguments), parse_windows(arguments.windows)
    if arguments.check:
        sys.exit(0 if check_inside(arguments, sessions, windows) else 1)
    run_lists(arguments, sessions, windows, parse_names(arguments.only))


def read_rows(file: Path) -> list[Row]:
    """The rows that an earlier run wrote."""
    return [Row(**row) for row in orjson.loads(file.read_bytes())]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add(
        "files", nargs="*", type=Path, help="JSONL of sessions (without: ../shared/data/conversations, or made-up ones)"
    )
    add("--windows", default="16000:2000,32000:4000,64000:8000,128000:16000", help="TOKENS:RESERVE,...")
    add("--only", default=",".join(CONTESTANTS), help="contestants, by name")
    add("--limit", type=int, help="only this many sessions, evenly picked")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a setting of trimtab")
    add("--restart", action="store_true", help="restart trimtab in the middle of each session (SQLite store)")
    add("--replicas", action="store_true", help="two trimtabs take turns (Redis store, a server that the bench starts)")
    add("--failing-summaries", action="store_true", help="every summary call is answered 500")
    add("--eager", action="store_true", help="do not wait for summaries between turns")
    add("--note-tokens", type=int, default=700, help="approximate length of a summary")
    add("--input", type=float, default=1.0, help="price of a prompt token")
    add("--cached-input", type=float, default=0.1, help="price of a cached prompt token")
    add("--output", type=float, default=4.0, help="price of a completion token")
    add(
        "--cache-write",
        type=float,
        default=1.25,
        help="factor for uncached input in the column of that name",
    )
    add("--cache-block", type=int, default=128, help="block size of the cache, in tokens")
    add("--cache-minimum", type=int, default=1024, help="shorter prefixes are not cached, in tokens")
    add_list_options(parser)
    add("--peers", type=Path, default=PEERS, help="folder in which bench.peers.install put the peers")
    add("--json", type=Path, help="write the rows to this file")
    add("--beside", type=Path, help="rows of an earlier run, shown if this run has no newer ones")
    add("--plot", type=Path, help="draw the plot as this PNG file")
    return parser.parse_args()


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """The options of runs by price lists."""
    add = parser.add_argument_group("price lists").add_argument
    add("--prices", metavar="NAMES", help="by the price lists of real models: all, or " + ",".join(MODEL_NAMES))
    add("--cache", default=OWN, help=f"how upstreams cache: {', '.join(CACHES)}; own: as each list's provider does")
    add("--gaps", choices=tuple(Gaps), default=Gaps.NONE, help="where idle gaps between requests are from")
    add("--cold", choices=("on", "off"), default="on", help="whether trimtab cuts at a cold cache")
    add("--seed", type=int, default=0, help="seed of drawn gaps")
    add("--capacity-tokens", type=int, default=CAPACITY_TOKENS, help="what a cache of kind lru holds")
    add("--together", type=int, default=8, help="sessions that share a cache of kind lru")
    add("--through", choices=("inside", "proxy"), default="inside", help="run trimtab in this process, or serve it")
    add("--check", action="store_true", help="compare both ways to run trimtab instead")
    add("--processes", type=int, default=min(os.cpu_count() or 1, 2), help="number of processes")


def prepare(arguments: argparse.Namespace) -> Bench:
    """Sessions and options from the arguments."""
    options = ReplayOptions(
        rules=LongestPrefix(arguments.cache_block, arguments.cache_minimum),
        note_tokens=arguments.note_tokens,
        eager=arguments.eager,
        failing_summaries=arguments.failing_summaries,
        restart=arguments.restart,
        replicas=2 if arguments.replicas else 1,
    )
    return Bench(
        arguments=arguments,
        sessions=pick(arguments),
        options=options,
        prices=Prices(arguments.input, arguments.cached_input, arguments.output, arguments.input),
    )


def pick(arguments: argparse.Namespace) -> list[Session]:
    """The sessions to replay, evenly picked if there is a limit."""
    sessions = load_sessions(arguments.files)
    limit = min(arguments.limit or len(sessions), len(sessions))
    return [sessions[index * len(sessions) // limit] for index in range(limit)]


def run_all(bench: Bench, earlier: Sequence[Row]) -> Iterator[Row]:
    """Run every contestant at every window, and print a table for each."""
    arguments = bench.arguments
    requests = sum(len(session.stops) for session in bench.sessions)
    print(f"{len(bench.sessions)} sessions, {requests} requests; {describe_machine()}", flush=True)
    for window in parse_windows(arguments.windows):
        rows, missing = run_window(bench, window)
        fresh = {row.contestant for row in rows}
        rows += [row for row in earlier if row.window_tokens == window.tokens and row.contestant not in fresh]
        rows.sort(key=lambda row: CONTESTANTS.index(row.contestant.partition(" ")[0]))
        missing = [name for name in missing if name not in {row.contestant for row in rows}]
        larger = max((row.larger_sessions for row in rows), default=0)
        print(f"\nwindow {window.tokens}, reserve {window.reserve_tokens}: {larger} sessions are larger")
        Console(width=TABLE_WIDTH).print(build_table(rows, missing, arguments.cache_write))
        yield from rows


def run_window(bench: Bench, window: Window) -> tuple[list[Row], list[str]]:
    """The rows of one window, and the names of peers that are not installed."""
    writing = replace(bench.prices, cache_write=bench.arguments.cache_write)
    nothing = bench.run("nothing", window).replayed
    rows: list[Row] = []
    missing: list[str] = []
    for name in parse_names(bench.arguments.only):
        try:
            run = bench.run(name, window)
        except MissingPeerError:
            missing.append(name)
            continue
        row = summarise(run, nothing, window, bench.prices, writing)
        rows.append(row)
        worst = f"worst {row.worst_session or 'none'}, of the smaller {row.smaller_worst_session or 'none'}"
        print(f"{row.contestant} at {window.tokens}: {row.seconds:.0f} s; {worst}", file=sys.stderr, flush=True)
    return rows, missing


def parse_windows(text: str) -> list[Window]:
    """TOKENS:RESERVE,..."""
    pairs = [pair.partition(":") for pair in text.split(",")]
    return [Window(int(tokens), int(reserve)) for tokens, _, reserve in pairs]


def parse_names(text: str) -> list[str]:
    """Known contestants in their order; an unknown name ends the program."""
    wanted = text.split(",")
    unknown = set(wanted) - set(CONTESTANTS)
    if unknown:
        message = f"no such contestant: {', '.join(sorted(unknown))}; known: {', '.join(CONTESTANTS)}"
        raise SystemExit(message)
    return [name for name in CONTESTANTS if name in wanted]


if __name__ == "__main__":
    main()
