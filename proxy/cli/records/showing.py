"""What `trimtab inspect` prints for people.

Law: it is imported only if it is needed, because it needs rich. Text of a conversation cannot control the terminal.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proxy.account.history.event import Event
from proxy.account.recordings.format import Recording
from proxy.cli.records.describing import Changed, diff
from proxy.cli.store.stats_table import WIDE_CHARS, write_dollars
from proxy.telemetry.logs import escape
from rules.pipeline.changes import Change, Fate
from rules.tokens.sections import Sections

STYLES = {"-": "red", "+": "green", "@": "cyan"}
"""Colours of the lines of a diff, by their first character."""


def make_console() -> Console:
    """The console to print to; wide if it is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, WIDE_CHARS)
    return console


def show_list(events: Iterable[Event], console: Console) -> None:
    """Print a line for each request, the newest first."""
    table = Table(box=None, pad_edge=False)
    for name in ("id", "time (UTC)", "model", "session", "outcome"):
        table.add_column(name, no_wrap=name != "model")
    for name in ("status", "original", "sent", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for event in events:
        table.add_row(
            safe(event.request_id[:12]),
            _write_time(event.at),
            safe(event.model),
            safe(event.session[:8]),
            safe(event.outcome),
            str(event.status),
            f"{event.original_tokens:,}" if event.original_tokens else "-",
            f"{event.sent_tokens:,}" if event.sent_tokens else "-",
            "-" if event.cost is None else write_dollars(event.cost),
        )
    console.print(table)


def show(recording: Recording, changed: Changed, console: Console, *, with_diff: bool) -> None:
    """Print everything about one request."""
    event = recording.event
    for line in _tell_request(event):
        console.print(safe(line))
    if event.original_tokens:
        console.print(_make_sections(event))
    _show_decisions(event, console)
    if recording.story:
        console.print(Text("\nWhat was done", "bold"))
        for sentence in recording.story:
            console.print(Padding(safe(f"- {sentence}"), (0, 0, 0, 2)))
    _show_changes(changed, console, with_diff=with_diff)
    if recording.summary is not None:
        by = "written by a model" if recording.summary.by_model else "a digest, written without a model"
        name = f", id {escape(recording.summary.id)}" if recording.summary.id else ""
        console.print(Text(f"\nSummary ({by}{name})", "bold"))
        console.print(safe(recording.summary.text, lines=True), soft_wrap=True)
    console.print()
    for line in _tell_answer(event):
        console.print(safe(line))
    if recording.is_redacted:
        console.print(
            "a key in the body is recorded as ***, so a replay is not byte for byte, and tokens may differ a little"
        )


def safe(text: str, *, lines: bool = False) -> Text:
    """The text without what could control a terminal. lines: it may have several."""
    if not lines:
        return Text(escape(text))
    return Text("\n".join(escape(line.expandtabs(4)) for line in text.split("\n")))


def _tell_request(event: Event) -> list[str]:
    where = f"{event.method} {event.path}"
    lines = [f"request {event.request_id} at {_write_time(event.at)} UTC, {where}"]
    if event.model:
        lines.append(f"model {event.model} at {event.upstream}")
    client = f", client {event.client}" if event.client else ""
    mode = f", mode {event.mode}" if event.mode else ""
    lines.append(f"outcome {event.outcome}, status {event.status}, {event.seconds:.2f} s{mode}{client}")
    if event.error:
        lines.append(f"error {event.error}: {event.reason}")
    if event.session:
        lines.append(f"session {event.session}, {event.messages} messages")
    if event.retry:
        lines.append(f"the upstream refused the first attempt as too long; the second: {event.retry}")
    return lines


def _make_sections(event: Event) -> Table:
    table = Table(box=None, pad_edge=False, title=f"Tokens (limit {event.limit_tokens:,})", title_justify="left")
    table.add_column("section")
    for name in ("original", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, original, sent in zip(Sections._fields, event.original_sections, event.sent_sections, strict=True):
        table.add_row(name, f"{original:,}", f"{sent:,}")
    table.add_row("total", f"{event.original_tokens:,}", f"{event.sent_tokens:,}", style="bold")
    return table


def _show_decisions(event: Event, console: Console) -> None:
    if not event.decisions:
        return
    table = Table(box=None, pad_edge=False, title="Decisions", title_justify="left")
    table.add_column("rule", no_wrap=True)
    for name in ("attempt", "before", "after", "saved", "messages", "from"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reason")
    for one in event.decisions:
        saved = one.tokens_before - one.tokens_after
        figures = (one.attempt, one.tokens_before, one.tokens_after, saved, one.messages, one.first_changed)
        table.add_row(safe(one.rule), *(f"{number:,}" for number in figures), safe(one.reason))
    console.print()
    console.print(table)


def _show_changes(changed: Changed, console: Console, *, with_diff: bool) -> None:
    if changed.doubt:
        console.print(Text(f"\nnote: {escape(changed.doubt)}", "yellow"))
    if not changed.changes:
        return
    console.print(Text("\nChanged messages", "bold"))
    if not with_diff:
        for _, group in groupby(changed.changes, key=_name_group):
            console.print(safe(f"  {_tell_group(list(group))}"))
        return
    for change in changed.changes:
        console.print(safe(f"  {_tell_change(change)}"))
        for line in diff(change):
            shown = Text(f"      {escape(line.expandtabs(4))}", STYLES.get(line[:1], ""))
            console.print(shown, soft_wrap=True)


def _name_group(change: Change) -> tuple[object, ...]:
    """What the changes of a line have in common: messages that are removed share one, any other has its own."""
    return (change.fate, change.rules) if change.fate is Fate.REMOVED else (id(change),)


def _tell_group(changes: Sequence[Change]) -> str:
    first, last = changes[0], changes[-1]
    if len(changes) == 1:
        return _tell_change(first)
    tokens, rules = sum(change.tokens_before for change in changes), ", ".join(first.rules)
    tools = Counter(change.tool for change in changes if change.tool)
    results = f" (results of {', '.join(f'{name}: {number}' for name, number in tools.most_common())})" if tools else ""
    return f"{first.at} to {last.at}: {len(changes)} messages removed by {rules}{results}, {tokens:,} -> 0 tokens"


def _tell_change(change: Change) -> str:
    tool = f" of {change.tool}" if change.tool else ""
    rules = ", ".join(change.rules)
    return (
        f"{change.at}: {change.role}{tool} {change.fate} by {rules or 'trimtab'}, "
        f"{change.tokens_before:,} -> {change.tokens_after:,} tokens"
    )


def _tell_answer(event: Event) -> list[str]:
    lines = []
    if event.prompt_tokens is not None:
        read = f", {event.cached_tokens:,} of them from its cache" if event.cached_tokens is not None else ""
        lines.append(f"the upstream counts {event.prompt_tokens:,} prompt tokens{read}")
    if event.completion_tokens is not None:
        whose = "estimated" if event.is_estimated else "as the upstream reports"
        lines.append(f"completion: {event.completion_tokens:,} tokens, {whose}")
    if event.prefix_kept is not None:
        lines.append(f"prefix kept from the previous request: {event.prefix_kept:.1%}")
    if event.cost is not None and event.without_cost is not None:
        lines.append(f"cost {write_dollars(event.cost)}; without trimtab {write_dollars(event.without_cost)}")
    return lines


def _write_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
