"""`trimtab demo`: the replay as a person sees it, a bar while it runs and a table when it is done.

Law: shows what replay.py measured; computes nothing but shares of it.
"""

import asyncio
import signal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from proxy.cli.demo.replay import (
    CACHED_INPUT_PRICE,
    INPUT_PRICE,
    OUTPUT_PRICE,
    WINDOW_TOKENS,
    DemoReport,
    Stage,
    Tally,
    replay_session,
    run_stage,
)
from proxy.cli.demo.session import MODEL, make_session
from proxy.cli.demo.upstream import Served


async def run_demo(*, keep: bool) -> None:
    """Replay the session and show what came of it; `keep` serves on until SIGINT or SIGTERM."""
    console = Console(highlight=False)
    session = make_session()
    console.print(
        f"A coding agent's session of {len(session.turns)} requests, through trimtab to a simulated upstream with a"
        f" window of {WINDOW_TOKENS:,} tokens.\n"
    )
    async with run_stage(session) as stage:
        show_report(console, await _replay(console, stage))
        if keep:
            await _serve_on(console, stage)


async def _replay(console: Console, stage: Stage) -> DemoReport:
    columns = (
        TextColumn("replaying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("client {task.fields[original]:>7,}  upstream {task.fields[sent]:>6,} tokens"),
    )
    # Where nobody watches, a bar is but a line of noise.
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=len(stage.session.turns), original=0, sent=0)

        def advance(tally: Tally, served: list[Served]) -> None:
            sent = next((item.prompt_tokens for item in reversed(served) if item.is_stream), 0)
            progress.update(bar, advance=1, original=tally.sizes[-1], sent=sent)

        return await replay_session(stage, advance)


def show_report(console: Console, report: DemoReport) -> None:
    """Print the table and the sentences below it."""
    console.print(_write_table(report))
    console.print(
        f"\nWithout trimtab the upstream would have refused {report.refused_originals} of {report.requests} requests.",
        style="bold",
    )
    acted = ", ".join(f"{rule} in {requests}" for rule, requests in report.decisions) or "none"
    console.print(f"Rules that acted, in how many requests: {acted}.")
    console.print(
        f"{report.intact} of {report.requests} answers reached the client byte for byte as the upstream sent them;"
        f" trimtab added {report.overhead_ms:.1f} ms to a request (median); {report.seconds:.1f} s in all."
    )
    if report.faults:
        console.print(f"The proxy logged faults: {', '.join(report.faults)}.", style="bold red")


def _write_table(report: DemoReport) -> Table:
    prices = f"input {INPUT_PRICE:g}, cached {CACHED_INPUT_PRICE:g}, output {OUTPUT_PRICE:g}"
    caption = (
        f"Cost by {prices}, summaries included. The costs without trimtab are those of an upstream with a boundless"
        " window and a perfect prompt cache."
    )
    table = Table(caption=caption, caption_justify="left", title_justify="left")
    table.add_column("")
    table.add_column("without trimtab", justify="right")
    table.add_column("with trimtab", justify="right", style="bold")
    for row in _write_rows(report):
        table.add_row(*row)
    return table


def _write_rows(report: DemoReport) -> list[tuple[str, str, str]]:
    """The table's lines: what is measured, without trimtab, with it."""
    requests, summaries = report.requests, report.summaries
    return [
        ("requests", f"{requests}", f"{requests}"),
        ("requests refused", f"{report.refused_originals}", f"{report.refused}"),
        ("prompt tokens", f"{report.original.prompt_tokens:,}", f"{report.sent.prompt_tokens:,}"),
        (
            f"largest prompt (window {WINDOW_TOKENS:,})",
            f"{report.largest_original_tokens:,}",
            f"{report.largest_prompt_tokens:,}",
        ),
        ("prefix kept (cached)", f"{report.original.cached_share:.1%}", f"{report.sent.cached_share:.1%}"),
        ("summaries made", "", f"{report.summary_requests}"),
        ("their prompt tokens", "", f"{summaries.prompt_tokens:,}"),
        ("their completion tokens", "", f"{summaries.completion_tokens:,}"),
        ("cost", "100.0%", f"{report.cost_ratio:.1%}"),
    ]


async def _serve_on(console: Console, stage: Stage) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lines = (
        "",
        f"export OPENAI_BASE_URL={stage.url}/v1",
        "export OPENAI_API_KEY=demo",
        "",
        f"The model is {MODEL}; what the proxy counts is at {stage.url}/metrics. Ctrl-C ends both servers.",
    )
    console.print("\n".join(lines), soft_wrap=True)
    await stop.wait()
