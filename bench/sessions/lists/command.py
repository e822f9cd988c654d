"""`bench.sessions.run --prices`: contestants by price lists, kinds of caches and gaps.

Law: one process for each core works on groups of sessions; a group's requests never leave its process, because parts
are compared by identity.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import NamedTuple

import orjson
from rich.console import Console

from bench.figures import describe_machine
from bench.material.workload import Session
from bench.peers.environments import MissingPeerError
from bench.sessions.baselines import IN_PROCESS, WINDOWLESS
from bench.sessions.caches.blocks import BlockLru
from bench.sessions.caches.breakpoints import Breakpoints
from bench.sessions.caches.cache import CacheKind
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.caches.lookback import LookBack
from bench.sessions.ledger import Call
from bench.sessions.lists.account import Trace, account
from bench.sessions.lists.contestants import Sent, Setting, send_in_process, send_inside, send_peer, send_through
from bench.sessions.lists.gaps import Gaps, count_long, find_moments
from bench.sessions.lists.prices import PriceList, describe_source, load_lists
from bench.sessions.lists.rows import Done, Row, make_group, split_by_size
from bench.sessions.lists.tables import build_overview, build_table
from bench.sessions.report import Window

NOTHING, TRIMTAB = "nothing", "trimtab"
OWN = "own"
CACHES = (OWN, "longest", "breakpoints", "breakpoints-own", "lookback", "lookback-unmarked", "lru")
TABLE_WIDTH = 240
_SESSIONS: list[Session] = []
"""The sessions of this process and of those that are forked from it."""


class Accounted(NamedTuple):
    """The calls of one session, at each of the kinds of caches."""

    session_id: str
    calls: tuple[tuple[Call, ...], ...]
    refused: int = 0


class Job(NamedTuple):
    """A contestant that runs in this process, on a group of sessions; `prices` only for trimtab."""

    contestant: str
    numbers: tuple[int, ...]
    window: Window
    setting: Setting
    prices: PriceList | None = None


def open_kind(name: str, prices: PriceList, arguments: argparse.Namespace) -> CacheKind:
    """A kind of cache by its name, with the lifetime of the list."""
    lifetime = prices.model.lifetime_seconds
    kinds: dict[str, CacheKind] = {
        OWN: prices.kind,
        "longest": LongestPrefix(arguments.cache_block, arguments.cache_minimum, lifetime),
        "breakpoints": Breakpoints(arguments.cache_minimum, lifetime),
        "breakpoints-own": Breakpoints(arguments.cache_minimum, lifetime, reads_earlier=False),
        "lookback": LookBack(arguments.cache_minimum, lifetime),
        "lookback-unmarked": LookBack(arguments.cache_minimum, lifetime, is_automatic=False),
        "lru": BlockLru(arguments.capacity_tokens),
    }
    return kinds[name]


def parse_caches(text: str) -> list[str]:
    """Known kinds of caches in their order; an unknown name ends the program."""
    wanted = text.split(",")
    unknown = set(wanted) - set(CACHES)
    if unknown:
        message = f"no such cache: {', '.join(sorted(unknown))}; known: {', '.join(CACHES)}"
        raise SystemExit(message)
    return [name for name in CACHES if name in wanted]


def run_job(job: Job) -> list[Accounted]:
    """Run a contestant on a group of sessions, and account for it."""
    sent = []
    for number in job.numbers:
        session = _SESSIONS[number]
        if job.prices is None:
            sent.append(send_in_process(job.contestant, session, job.window, job.setting.kind))
        else:
            sent.append(send_inside(session, job.window, job.prices, job.setting))
    return account_for(sent, job.setting)


def account_for(sent: Sequence[Sent], setting: Setting) -> list[Accounted]:
    """The calls of what was sent, at each of the setting's caches."""
    traces = [Trace(one.session.id, one.requests, setting.moments[one.session.id]) for one in sent]
    calls = zip(*(account(traces, kind) for kind in setting.kinds), strict=True)
    return [Accounted(one.session.id, own, one.refused) for one, own in zip(sent, calls, strict=True)]


@dataclass(slots=True)
class ListBench:
    """One run of the command. `_done` are contestants that know neither window nor prices."""

    arguments: argparse.Namespace
    names: Sequence[str]
    caches: Sequence[str]
    pool: ProcessPoolExecutor
    moments: dict[str, tuple[float, ...]]
    _done: dict[tuple[object, ...], list[Accounted]] = field(default_factory=dict)

    def run_list(self, window: Window, prices: PriceList) -> tuple[list[Row], list[str]]:
        """The rows of one price list at one window, and the names of peers that are not installed."""
        arguments = self.arguments
        kinds = tuple(open_kind(name, prices, arguments) for name in self.caches)
        setting = Setting(
            kinds,
            self.moments,
            arguments.note_tokens,
            arguments.peers,
            tuple(arguments.settings),
            is_cold=arguments.cold == "on",
        )
        nothing = {one.session_id: one.calls for one in self._run(NOTHING, window, prices, setting)}
        rows: list[Row] = []
        missing: list[str] = []
        for name in self.names:
            started = time.perf_counter()
            try:
                found = self._run(name, window, prices, setting)
            except MissingPeerError:
                missing.append(name)
                continue
            seconds = time.perf_counter() - started
            for place, cache in enumerate(self.caches):
                done = [
                    Done(one.session_id, one.calls[place], nothing[one.session_id][place], one.refused) for one in found
                ]
                rows.append(self._make_row((name, cache), window, prices, done, seconds))
            print(f"{prices.name}, {window.tokens}: {name} took {seconds:.0f} s", file=sys.stderr, flush=True)
        return rows, missing

    def _run(self, name: str, window: Window, prices: PriceList, setting: Setting) -> list[Accounted]:
        if name == TRIMTAB and self.arguments.through == "proxy":
            return self._account_all(send_through(_SESSIONS, window, prices, setting), setting)
        if name == TRIMTAB:
            return self._run_groups([Job(name, group, window, setting, prices) for group in self._groups(setting)])
        # The same for all lists with these kinds of caches, and at all windows if it knows of none.
        key = (name, setting.kinds, None if name in WINDOWLESS else window)
        if key not in self._done:
            if name in IN_PROCESS:
                jobs = [Job(name, group, window, setting) for group in self._groups(setting)]
                self._done[key] = self._run_groups(jobs)
            else:
                self._done[key] = self._account_all(send_peer(name, _SESSIONS, window, setting), setting)
        return self._done[key]

    def _run_groups(self, jobs: Sequence[Job]) -> list[Accounted]:
        return list(chain.from_iterable(self.pool.map(run_job, jobs)))

    def _account_all(self, sent: Sequence[Sent], setting: Setting) -> list[Accounted]:
        by_id = {one.session.id: one for one in sent if one.is_complete}
        groups = ([_SESSIONS[number].id for number in group] for group in self._groups(setting))
        found = ([by_id[name] for name in group if name in by_id] for group in groups)
        return list(chain.from_iterable(account_for(group, setting) for group in found))

    def _groups(self, setting: Setting) -> list[tuple[int, ...]]:
        """Sessions by number; those of one group share a cache. The heaviest sessions come first, one in each group."""
        order = sorted(range(len(_SESSIONS)), key=lambda number: -_weigh(_SESSIONS[number]))
        size = self.arguments.together if any(kind.is_shared for kind in setting.kinds) else 1
        count = max(-(-len(order) // size), 1)
        return [tuple(order[first::count]) for first in range(count)]

    def _make_row(
        self, name: tuple[str, str], window: Window, prices: PriceList, done: list[Done], seconds: float
    ) -> Row:
        larger, fitting = split_by_size(done, window.limit_tokens)
        return Row(
            contestant=name[0],
            window_tokens=window.tokens,
            reserve_tokens=window.reserve_tokens,
            prices=prices.name,
            cache=name[1],
            gaps=self.arguments.gaps,
            requests=sum(len(session.stops) for session in _SESSIONS),
            long_gaps=sum(map(count_long, self.moments.values())),
            summaries=sum(call.is_summary for one in done for call in one.calls),
            refused=sum(one.refused for one in done),
            seconds=seconds,
            larger=make_group(larger, prices.prices),
            fitting=make_group(fitting, prices.prices),
        )


def run_lists(
    arguments: argparse.Namespace, sessions: Sequence[Session], windows: Sequence[Window], names: Sequence[str]
) -> None:
    """Run all contestants by all price lists, print the tables, and write the rows."""
    _SESSIONS[:] = sessions
    caches = parse_caches(arguments.cache)
    lists, gaps = load_lists(arguments.prices), Gaps(arguments.gaps)
    print(f"{len(sessions)} sessions, {sum(len(one.stops) for one in sessions)} requests; {describe_machine()}")
    print(describe_source(lists), flush=True)
    try:
        moments = {session.id: find_moments(session, gaps, arguments.seed) for session in sessions}
    except LookupError as error:
        raise SystemExit(str(error)) from None
    context = multiprocessing.get_context("fork")  # forked processes have the sessions without a copy
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        rows = list(_show(ListBench(arguments, names, caches, pool, moments), windows, lists))
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(list(map(asdict, rows)), option=orjson.OPT_INDENT_2))


def _show(bench: ListBench, windows: Sequence[Window], lists: Sequence[PriceList]) -> Iterator[Row]:
    console = Console(width=TABLE_WIDTH)
    for window in windows:
        rows: list[Row] = []
        for prices in lists:
            found, missing = bench.run_list(window, prices)
            rows += found
            for cache in bench.caches:
                own = [row for row in found if row.cache == cache]
                larger = max((row.larger.sessions for row in own), default=0)
                print(f"\n{prices.name}, window {window.tokens}, cache {cache}, gaps {bench.arguments.gaps}:", end=" ")
                print(f"{larger} sessions are larger")
                console.print(build_table(own, missing))
        for cache in bench.caches:
            print(f"\nall lists, window {window.tokens}, cache {cache}")
            console.print(build_overview([row for row in rows if row.cache == cache]))
        yield from rows


def _weigh(session: Session) -> int:
    return len(session.stops) * sum(map(len, session.messages))
