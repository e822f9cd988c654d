"""Checks that trimtab in this process sends what the proxy sends: the same sessions through both, request by request.

Law: both have the same settings and prices, and the same prompt gets the same note. Requests are equal if their parts
and marks are; see prompts.py.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import zip_longest
from operator import is_

from bench.material.workload import Session
from bench.sessions.caches.longest import LongestPrefix
from bench.sessions.ledger import Request
from bench.sessions.lists.contestants import Sent, Setting, send_inside, send_through
from bench.sessions.lists.gaps import Gaps, find_moments
from bench.sessions.lists.prices import PriceList, load_lists
from bench.sessions.report import Window
from trimtab.proxy.config.schema import PricesConfig


def check_inside(arguments: argparse.Namespace, sessions: Sequence[Session], windows: Sequence[Window]) -> bool:
    """Print how far both agree by each price list; return whether they agree in all."""
    gaps = Gaps(arguments.gaps)
    moments = {session.id: find_moments(session, gaps, arguments.seed) for session in sessions}
    setting = Setting(
        (LongestPrefix(),),
        moments,
        arguments.note_tokens,
        arguments.peers,
        settings=tuple(arguments.settings),
        is_cold=arguments.cold == "on",
    )
    is_whole = True
    for prices in load_lists(arguments.prices):
        if prices.prices.cache_write != prices.prices.input and "cache_write" not in PricesConfig.model_fields:
            print(f"{prices.name}: this version of trimtab cannot be told its price of writes", file=sys.stderr)
        for window in windows:
            same, total = compare(sessions, window, prices, setting)
            print(f"{prices.name}, window {window.tokens}: {same} of {total} requests are the same", flush=True)
            is_whole &= same == total
    return is_whole


def compare(sessions: Sequence[Session], window: Window, prices: PriceList, setting: Setting) -> tuple[int, int]:
    """How many requests are the same, and how many there are."""
    there = {one.session.id: one for one in send_through(sessions, window, prices, setting)}
    same = total = 0
    for session in sessions:
        found = compare_sent(send_inside(session, window, prices, setting), there[session.id])
        same, total = same + sum(found), total + len(found)
    return same, total


def compare_sent(here: Sent, there: Sent) -> list[bool]:
    """For each request of the client whether both sent the same."""
    pairs = zip_longest(_list_turns(here), _list_turns(there))
    return [left is not None and right is not None and _is_same(left, right) for left, right in pairs]


def _list_turns(sent: Sent) -> list[Request]:
    return [request for request in sent.requests if not request.is_summary]


def _is_same(left: Request, right: Request) -> bool:
    """Parts with the same bytes are the same object."""
    are_same = len(left.parts) == len(right.parts) and all(map(is_, left.parts, right.parts))
    return are_same and left.marks == right.marks
