"""Measures the time that the proxy adds to a long agent request whose messages it has counted before.

    python -m bench.latency.overhead --requests 300

The same request goes to the upstream directly and through the proxy, by turns, in one run, over one kept connection
each. `added` is the difference of the medians. `own` is the proxy's own figure (Server-Timing): from the request's head
until the request is forwarded.
"""

import argparse
import re
from dataclasses import dataclass

from bench.figures import describe_machine, judge, median_ms, p95_ms
from bench.harness.servers import run_proxy, run_upstream
from bench.latency.client import Answer, Connection, build_request
from bench.material.transcript import build_body

GOAL_MS = 4.0
WARM_UP = 30
_OWN_MS = re.compile(r"trimtab;dur=([\d.]+)")


@dataclass(frozen=True, slots=True)
class Case:
    """A situation: the policy's window, the transcript, and all rules that must have acted."""

    name: str
    context_window: int
    long_results: int = 0
    rules: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of each request, and the proxy's own milliseconds."""

    direct_seconds: list[float]
    proxied_seconds: list[float]
    own_ms: list[float]
    note: str


CASES = (
    Case("mode off", 1_000_000, headers=("x-trimtab-mode: off",)),
    Case("nothing to do", 1_000_000),
    Case("truncation", 1_000_000, long_results=5, rules=("truncate",)),
    Case("cut made", 32_768, rules=("summarise",)),
)


def measure(case: Case, upstream_port: int, total_bytes: int, requests: int) -> Figures:
    """Ask both by turns; the order changes from turn to turn."""
    request = build_request(build_body(total_bytes, long_results=case.long_results), *case.headers)
    figures = Figures([], [], [], f"{len(request) / 1000:.0f} kB")
    settings = f"defaults.context_window={case.context_window}"
    with (
        run_proxy(upstream_port, settings) as proxy_port,
        Connection(upstream_port) as direct,
        Connection(proxy_port) as proxied,
    ):
        for number in range(WARM_UP + requests):
            turns = ((direct, figures.direct_seconds), (proxied, figures.proxied_seconds))
            for connection, seconds in turns if number % 2 else reversed(turns):
                answer = connection.ask(request)
                if connection is proxied:
                    check_rules(case, answer)
                if number < WARM_UP:
                    continue
                seconds.append(answer.seconds)
                if connection is proxied:
                    figures.own_ms.append(read_own_ms(answer))
    return figures


def check_rules(case: Case, answer: Answer) -> None:
    """Check that the proxy did what the case is about. Raises RuntimeError."""
    decisions = answer.header("x-trimtab-decisions")
    acted = tuple(item.partition(";")[0] for item in decisions.split(", ") if item)
    if acted != case.rules:
        message = f"{case.name}: expected {case.rules}, the proxy did {decisions or 'nothing'}"
        raise RuntimeError(message)


def read_own_ms(answer: Answer) -> float:
    """The proxy's own milliseconds. Raises RuntimeError if the header is missing."""
    found = _OWN_MS.search(answer.header("server-timing"))
    if found is None:
        message = "the proxy sent no Server-Timing"
        raise RuntimeError(message)
    return float(found.group(1))


def show(case: Case, figures: Figures) -> None:
    direct, proxied = figures.direct_seconds, figures.proxied_seconds
    added_ms = median_ms(proxied) - median_ms(direct)
    own_ms = sorted(figures.own_ms)[len(figures.own_ms) // 2]
    print(
        f"{case.name:14} {figures.note:>7}  {median_ms(direct):7.2f} {p95_ms(direct):7.2f}"
        f"  {median_ms(proxied):7.2f} {p95_ms(proxied):7.2f}  {added_ms:7.2f} {own_ms:5.1f}"
        f"  {judge(added_ms, GOAL_MS, 'ms')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--requests", type=int, default=300, help="requests of each case directly, and as many through the proxy"
    )
    parser.add_argument("--kilobytes", type=int, default=400, help="size of the request")
    arguments = parser.parse_args()
    print(describe_machine())
    print(f"{'ms':14} {'request':>7}  {'direct':>7} {'p95':>7}  {'proxied':>7} {'p95':>7}  {'added':>7} {'own':>5}")
    with run_upstream() as upstream_port:
        for case in CASES:
            show(case, measure(case, upstream_port, arguments.kilobytes * 1000, arguments.requests))


if __name__ == "__main__":
    main()
