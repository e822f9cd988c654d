"""`trimtab demo` on the terminal: a progress bar during the replay, a table after it.

Law: it shows what replay.py measured, and computes only sums and shares of that.
"""

import asyncio
import signal
import statistics
from collections import Counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from proxy.cli.demo.replay import (
    CACHED_INPUT_PRICE,
    INPUT_PRICE,
    OUTPUT_PRICE,
    WINDOW_TOKENS,
    Replay,
    replay_session,
    run_stage,
)
from proxy.cli.demo.session import MODEL, make_session
from proxy.cli.demo.upstream import Cost
from proxy.telemetry.logs import configure_log


async def run_demo(*, keep: bool) -> None:
    """Replay the session and print the result. With `keep`, go on serving until SIGINT or SIGTERM."""
    configure_log("warning")
    console = Console(highlight=False)
    session = make_session()
    console.print(
        f"Sending a coding agent's session of {len(session.turns)} requests through trimtab to a simulated upstream"
        f" with a window of {WINDOW_TOKENS:,} tokens.\n"
    )
    async with run_stage(session, keeps_text=keep) as (url, upstream):
        # Without a terminal, a progress bar would only clutter the output.
        turns = track(session.turns, "replaying", console=console, disable=not console.is_terminal)
        replay = await replay_session(url, upstream, session, turns)
        show_replay(console, replay)
        if keep:
            await _serve_on(console, url)


def show_replay(console: Console, replay: Replay) -> None:
    """Print the table and, below it, three sentences."""
    requests, answered = len(replay.exchanges), {one.answer_hash for one in replay.served if one.is_stream}
    refused = sum(one.original.prompt_tokens > WINDOW_TOKENS for one in replay.exchanges)
    intact = sum(one.answer_hash in answered for one in replay.exchanges)
    rules = Counter(rule for one in replay.exchanges for rule in sorted(one.rules)).most_common()
    overhead_ms = statistics.median(one.overhead_ms for one in replay.exchanges)
    console.print(_write_table(replay, refused))
    console.print(f"\nWithout trimtab the upstream would have refused {refused} of {requests} requests.", style="bold")
    acted = ", ".join(f"{rule} in {times}" for rule, times in rules) or "none"
    console.print(f"Rules that changed requests: {acted}.")
    console.print(
        f"{intact} of {requests} answers reached the client byte for byte as the upstream sent them;"
        f" trimtab added {overhead_ms:.1f} ms to a request (median)."
    )


def _write_table(replay: Replay, refused: int) -> Table:
    prices = f"input {INPUT_PRICE:g}, cached {CACHED_INPUT_PRICE:g}, output {OUTPUT_PRICE:g}"
    caption = (
        f"Cost at the prices {prices}, summaries included. The cost without trimtab is that of an upstream with an"
        " unlimited window and a perfect prompt cache."
    )
    table = Table("", caption=caption, caption_justify="left")
    table.add_column("without trimtab", justify="right")
    table.add_column("with trimtab", justify="right", style="bold")
    sent, summaries = replay.sum_cost(is_stream=True), replay.sum_cost(is_stream=False)
    original = sum((one.original for one in replay.exchanges), Cost(completion_tokens=sent.completion_tokens))
    requests = f"{len(replay.exchanges)}"
    largest = max(one.original.prompt_tokens for one in replay.exchanges)
    still_refused = sum(one.status != 200 for one in replay.exchanges)
    largest_sent = max((one.cost.prompt_tokens for one in replay.served), default=0)
    table.add_row("requests", requests, requests)
    table.add_row("requests refused", f"{refused}", f"{still_refused}")
    table.add_row("prompt tokens", f"{original.prompt_tokens:,}", f"{sent.prompt_tokens:,}")
    table.add_row(f"largest prompt (window {WINDOW_TOKENS:,})", f"{largest:,}", f"{largest_sent:,}")
    table.add_row("prefix kept (cached)", f"{share_cached(original):.1%}", f"{share_cached(sent):.1%}")
    table.add_row("summaries made", "", f"{sum(not one.is_stream for one in replay.served)}")
    table.add_row("summary prompt tokens", "", f"{summaries.prompt_tokens:,}")
    table.add_row("summary completion tokens", "", f"{summaries.completion_tokens:,}")
    table.add_row("cost", "100.0%", f"{price(sent + summaries) / price(original):.1%}")
    return table


def share_cached(cost: Cost) -> float:
    """The share of the prompt tokens that were cached, from 0 to 1."""
    return cost.cached_tokens / max(cost.prompt_tokens, 1)


def price(cost: Cost) -> float:
    """The cost in units of one uncached prompt token."""
    uncached_tokens = cost.prompt_tokens - cost.cached_tokens
    input_price = uncached_tokens * INPUT_PRICE + cost.cached_tokens * CACHED_INPUT_PRICE
    return input_price + cost.completion_tokens * OUTPUT_PRICE


async def _serve_on(console: Console, url: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console.print(f"\nSee the session on the dashboard: {url}/trimtab/", soft_wrap=True)
    console.print(f"\nexport OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY=demo\n", soft_wrap=True)
    more = f"The model is {MODEL}; the proxy's metrics are at {url}/metrics. Ctrl-C stops both servers."
    console.print(more, soft_wrap=True)
    await stop.wait()
