"""Measures the cost of a turn by its old bytes and by its new bytes.

Law: the gateways take turns, request by request, with the same bodies.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.scale.gateways import BARE, Gateway
from bench.scale.session import Session

REPEATS = 9
"""Turns in a row at each length; their median counts. Chosen. The turn before them is sent so that they are known."""
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Point:
    """A turn of a gateway: medians in milliseconds, and the old and new bytes of its body."""

    gateway: str
    old_bytes: int
    new_bytes: int
    processor_ms: float
    passed_ms: float


def measure_lengths(gateways: Sequence[Gateway], lengths: Sequence[int], *, repeats: int = REPEATS) -> Iterator[Point]:
    """One session as it grows: some turns in a row at each length."""
    session = Session(0)
    for length in lengths:
        bodies = [session.write_body(length + number) for number in range(repeats + 1)]
        for gateway in gateways:
            gateway.ask(bodies[0])
        taken = _take_turns(gateways, bodies[1:])
        new = (len(bodies[-1]) - len(bodies[0])) // repeats
        for gateway, turns in zip(gateways, taken, strict=True):
            yield make_point(gateway.name, len(bodies[0]), new, turns)


def measure_news(
    gateways: Sequence[Gateway], length: int, news: Sequence[int], *, repeats: int = REPEATS
) -> Iterator[Point]:
    """Turns that add many steps at once to a session of one length; each turn has its own session."""
    for number, steps in enumerate(news):
        turns: list[list[tuple[float, float]]] = [[] for _ in gateways]
        old = new = 0
        for repeat in range(repeats):
            session = Session(1 + number * repeats + repeat)
            known, body = session.write_body(length), session.write_body(length + steps)
            old, new = len(known), len(body) - len(known)
            for gateway in gateways:
                gateway.ask(known)
            for found, taken in zip(turns, _take_turns(gateways, [body]), strict=True):
                found.extend(taken)
        for gateway, found in zip(gateways, turns, strict=True):
            yield make_point(gateway.name, old, new, found)


def _take_turns(gateways: Sequence[Gateway], bodies: Sequence[bytes]) -> list[list[tuple[float, float]]]:
    taken: list[list[tuple[float, float]]] = [[] for _ in gateways]
    for number, body in enumerate(bodies):
        # The order alternates: the upstream's caches are warm for the second gateway.
        order = range(len(gateways)) if number % 2 else reversed(range(len(gateways)))
        for index in order:
            turn = gateways[index].ask(body)
            taken[index].append((turn.processor_ms, turn.passed_ms))
    return taken


def make_point(name: str, old_bytes: int, new_bytes: int, turns: Sequence[tuple[float, float]]) -> Point:
    """The medians of some turns."""
    processor, passed = (statistics.median(column) for column in zip(*turns, strict=True))
    return Point(name, old_bytes, new_bytes, processor, passed)


def find_slope(points: Sequence[Point], name: str, by: str = "old_bytes") -> float:
    """Milliseconds of processor time for each further megabyte, beyond those of the bare proxy, by least squares."""
    bare = {(point.old_bytes, point.new_bytes): point.processor_ms for point in points if point.gateway == BARE}
    own = [point for point in points if point.gateway == name]
    megabytes = [getattr(point, by) / MEGABYTE for point in own]
    beyond = [point.processor_ms - bare[point.old_bytes, point.new_bytes] for point in own]
    return statistics.linear_regression(megabytes, beyond).slope
