"""An honest client's sessions beside a hostile client of each kind: the same bytes and decisions, and how fast.

    python -m bench.soak.neighbours --steps 60

Each kind gets a fresh proxy (`trimtab serve`) and a fresh upstream; all are processes of their own, and so is the
hostile client. The honest client replays the same two sessions: a window cuts one of them, and none cuts the other.
What the upstream received and what the response headers say must be as without a hostile client. Ends with status 1 if
not.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
import click
import orjson

from bench.figures import describe_machine, print_table
from bench.harness.servers import find_free_port, run_upstream, start_proxy, stop, wait_until_ready
from bench.soak.clients import Texts
from bench.soak.faults import ID_HEADER
from bench.soak.hostile import KINDS

CONFIG = """
store: sqlite:///{folder}/summaries.sqlite3
upstream: {{base_url: "http://127.0.0.1:{port}/v1"}}
defaults: {{completion_reserve: 1000, overflow_strategy: prune}}
models:
  - {{match: cut, context_window: 10000}}
"""
HEAD_START_SECONDS = 2.0
"""Seconds that the hostile client works before the honest one begins. Chosen."""
TOLD = ("x-trimtab-tokens", "x-trimtab-decisions")


@dataclass
class Seen:
    """The results of an honest client's requests: bodies at the upstream, response headers, and seconds."""

    sent: dict[str, str] = field(default_factory=dict)
    told: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def count_differing(self, other: "Seen") -> int:
        """The number of requests that differ."""
        return sum(
            self.sent.get(number) != other.sent.get(number) or self.told[number] != other.told.get(number)
            for number in self.told
        )


@contextmanager
def running(kind: str, folder: str) -> Iterator[tuple[int, int]]:
    """The ports of a proxy and its upstream, with a hostile client of one kind at work."""
    config = Path(folder, "trimtab.yaml")
    with run_upstream(module="bench.soak.witness") as upstream_port:
        config.write_text(CONFIG.format(folder=folder, port=upstream_port), encoding="utf-8")
        port = find_free_port()
        proxy = start_proxy(port, "--config", str(config))
        hostile: subprocess.Popen[bytes] | None = None
        try:
            wait_until_ready(port, proxy)
            hostile = subprocess.Popen([sys.executable, "-m", "bench.soak.hostile", kind, str(port)])
            yield port, upstream_port
        finally:
            if hostile is not None:
                stop(hostile)
            stop(proxy)


async def replay(port: int, upstream_port: int, steps: int) -> Seen:
    """Both sessions, step by step, as one honest client."""
    texts, seen = Texts(1), Seen()
    headers = {"Authorization": "Bearer honest", "Content-Type": "application/json"}
    async with aiohttp.ClientSession() as session:
        for step in range(1, steps + 1):
            for model in ("open", "cut"):
                number = f"{model}-{step}"
                body = orjson.dumps({"model": model, "messages": texts.write_session(1, step)})
                began = time.monotonic()
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                async with session.post(url, data=body, headers=headers | {ID_HEADER: number}) as answer:
                    await answer.read()
                seen.seconds.append(time.monotonic() - began)
                seen.told[number] = (str(answer.status), *(answer.headers.get(name, "") for name in TOLD))
        async with session.get(f"http://127.0.0.1:{upstream_port}/soak/seen") as answer:
            seen.sent = orjson.loads(await answer.read())
    return seen


def look(kind: str, steps: int) -> Seen:
    with tempfile.TemporaryDirectory(prefix="trimtab-neighbours-") as folder, running(kind, folder) as ports:
        time.sleep(HEAD_START_SECONDS)
        return asyncio.run(replay(*ports, steps))


@click.command()
@click.option("--steps", default=60, show_default=True, help="Steps of each of the two sessions.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*KINDS]), help="Only this kind; may be repeated.")
def main(steps: int, kinds: tuple[str, ...]) -> None:
    """Replay honest sessions beside hostile clients; see the top of this file."""
    click.echo(describe_machine())
    alone, rows, differing = look("nobody", steps), [], 0
    for kind in kinds or KINDS:
        seen = look(kind, steps)
        differs = alone.count_differing(seen)
        differing += differs
        milliseconds = [1000 * median(each.seconds) for each in (alone, seen)]
        worst = 1000 * max(seen.seconds)
        ratio = milliseconds[1] / milliseconds[0]
        figures = (f"{milliseconds[0]:.1f}", f"{milliseconds[1]:.1f}", f"{ratio:.2f}", f"{worst:.0f}")
        rows.append((kind, f"{differs} of {len(alone.told)}", *figures))
    print_table("Beside", ("", "differ", "median ms, alone", "beside it", "ratio", "longest ms"), rows)
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
