"""Measures the time that the proxy adds before the first event of a stream, and to each later event.

    python -m bench.latency.first_byte --streams 60

The same request goes to the upstream directly and through the proxy, by turns, in one run. The upstream streams with
real pauses. It writes the time of sending into each event; all processes of a machine share that clock.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from bench.figures import describe_machine, judge, median_ms, p95_ms, p99_ms
from bench.harness.servers import run_proxy, run_upstream
from bench.latency.client import Connection, build_request
from bench.material.transcript import build_body

GOAL_MS = 1.0
WARM_UP = 4


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds until each stream's first event, and the delay of each later event in seconds."""

    first_seconds: list[float]
    delays_seconds: list[float]


def measure(request: bytes, direct_port: int, proxy_port: int, streams: int) -> tuple[Series, Series]:
    """Follow streams of both by turns; the order changes from turn to turn."""
    direct, proxied = Series([], []), Series([], [])
    with Connection(direct_port) as to_upstream, Connection(proxy_port) as to_proxy:
        for number in range(WARM_UP + streams):
            turns = ((to_upstream, direct), (to_proxy, proxied))
            for connection, series in turns if number % 2 else reversed(turns):
                stream = connection.stream(request)
                if number < WARM_UP:
                    continue
                series.first_seconds.append(stream.first_byte_seconds)
                series.delays_seconds.extend(stream.delays_seconds[1:])
    return direct, proxied


def show(name: str, direct: Sequence[float], proxied: Sequence[float]) -> None:
    added_ms = median_ms(proxied) - median_ms(direct)
    print(
        f"{name:12} {median_ms(direct):7.3f} {p95_ms(direct):7.3f} {p99_ms(direct):7.3f}"
        f"  {median_ms(proxied):7.3f} {p95_ms(proxied):7.3f} {p99_ms(proxied):7.3f}"
        f"  {added_ms:7.3f}  {judge(added_ms, GOAL_MS, 'ms')}"
    )


def build_small_body() -> bytes:
    """A short question whose response is streamed."""
    question = {"role": "user", "content": "Say fifty words about trim tabs."}
    return orjson.dumps({"model": "bench", "stream": True, "messages": [question]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=60, help="streams directly, and as many through the proxy")
    parser.add_argument("--chunks", type=int, default=50, help="events of a stream, at least 2")
    parser.add_argument("--pause-ms", type=float, default=5.0, help="milliseconds between two events")
    parser.add_argument("--kilobytes", type=int, default=0, help="size of the request; 0: a short question")
    arguments = parser.parse_args()
    if arguments.chunks < 2:
        parser.error("--chunks must be at least 2: the first event and a later one are measured")
    body = build_body(arguments.kilobytes * 1000) if arguments.kilobytes else build_small_body()
    pause = f"--pause-ms={arguments.pause_ms}"
    print(describe_machine())
    print(f"{'ms':12} {'direct':>7} {'p95':>7} {'p99':>7}  {'proxied':>7} {'p95':>7} {'p99':>7}  {'added':>7}")
    with (
        run_upstream(f"--chunks={arguments.chunks}", pause) as upstream_port,
        run_proxy(upstream_port, "defaults.context_window=1000000") as proxy_port,
    ):
        direct, proxied = measure(build_request(body), upstream_port, proxy_port, arguments.streams)
    show("first event", direct.first_seconds, proxied.first_seconds)
    show("later events", direct.delays_seconds, proxied.delays_seconds)


if __name__ == "__main__":
    main()
