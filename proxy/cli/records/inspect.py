"""`trimtab inspect`: what was done to a request, from its recording: as JSON, and for people.

Law: the recording says what happened; only the changed messages are found out by planning it again. Text of a
conversation cannot control the terminal.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from difflib import unified_diff
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson
from msgspec import structs
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.proxy.account.history.sessions import Session, SessionQuery, list_sessions
from trimtab.proxy.account.history.table import Bounds, Row, add, open_in_memory
from trimtab.proxy.account.history.texts import Title, attach, keep_title
from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recordings.folder import LAST, NoRecordingError, list_files, read_all, read_one
from trimtab.proxy.account.recordings.format import BadRecordingError, Recording
from trimtab.proxy.account.redact import HIDDEN, Hidden
from trimtab.proxy.cli.options import give_up, takes_config, usual_recordings, wrong_use
from trimtab.proxy.cli.records.run import find_difference
from trimtab.proxy.cli.records.variants import RecordedVariants
from trimtab.proxy.cli.stats import filter_options, read_query, show_sessions
from trimtab.proxy.cli.tables import add_figures, make_console, print_fitting, safe, write_cost, write_short
from trimtab.proxy.compaction.caches import make_known
from trimtab.proxy.compaction.engine import Compaction
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.exchange.record import find_title
from trimtab.proxy.server.admin.shapes import shape_event
from trimtab.proxy.telemetry.logs import configure_log, escape, get_log
from trimtab.proxy.wire.codec import Counting, UndecodableError
from trimtab.proxy.wire.dialects import name_codec
from trimtab.rules.pipeline.changes import Change, Fate
from trimtab.rules.summary.request import OPAQUE
from trimtab.rules.tokens.sections import Sections

STYLES = {"-": "red", "+": "green", "@": "cyan"}  # Colours of the lines of a diff, by their first character
CONTEXT_LINES = 2  # lines around a difference that are shown. Chosen: enough to find the place.
NOTHING_HIDDEN = Hidden.of((), ())  # a recording has its keys replaced already
_OF_REQUEST = ("dialect", "path", "model", "headers", "is_redacted")  # what is told of a request beside its body
OTHERWISE = "this trimtab plans the request otherwise than the one that recorded it: "


class Changed(msgspec.Struct, frozen=True):
    """The messages that are forwarded differently. doubt: why they may not be those of that time; empty if they are."""

    changes: tuple[Change, ...] = ()
    doubt: str = ""


def find_changes(recording: Recording) -> Changed:
    variants = RecordedVariants(Compactors(get_log()))
    try:
        found = variants.read(recording)
        compaction = None if found is None else variants.compact(recording, *found)[1]
    except (UndecodableError, ValueError):  # values that no trimtab has written
        return Changed(
            doubt="the changed messages are not known: the recorded body, or what it was planned with, cannot be read"
        )
    if compaction is None or not compaction.compacted.forwarded.messages:  # the policy refuses it
        return Changed()
    return Changed(compaction.tell().changes, _find_doubt(recording, compaction))


def _find_doubt(recording: Recording, compaction: Compaction) -> str:
    """Why the plan may not be that of the recording. Behind a replaced credential, only the rules are compared."""
    difference, decisions = find_difference(recording, compaction), recording.counted.decisions
    if recording.is_redacted:
        was, now = (
            [(one.rule, one.messages, one.first_changed) for one in each]
            for each in (decisions, compaction.compacted.decisions)
        )
        return "" if not was or was == now else OTHERWISE + difference
    return OTHERWISE + difference if difference else ""


def diff(change: Change) -> Iterator[str]:
    """The lines of a change: each begins with `-`, `+`, a space, or `@@` where lines are left out."""
    before, after = change.before.splitlines(), change.after.splitlines()
    lines = unified_diff(before, after, n=CONTEXT_LINES, lineterm="")
    return (line for line in lines if not line.startswith(("---", "+++")) or line[3:].strip())


def describe(recording: Recording, changed: Changed, *, with_texts: bool = False) -> dict[str, Any]:
    """A recording as JSON, without the bodies. with_texts: also the texts of changed messages."""
    event, request = recording.event, recording.request
    described: dict[str, Any] = {
        "event": describe_event(event),
        "request": None if request is None else {name: getattr(request, name) for name in _OF_REQUEST},
        "story": list(recording.story),
        "changes": [change.describe(with_texts=with_texts) for change in changed.changes],
        "summary": None if recording.summary is None else asdict(recording.summary),
    }
    if changed.doubt:
        described["doubt"] = changed.doubt
    if recording.call is not None:
        described["call"] = msgspec.to_builtins(recording.call)
    return described


def describe_event(event: Outcome) -> dict[str, Any]:
    """An event as JSON, as at /trimtab/api/requests, but with all sections also if the prompt was not counted."""
    shaped, none = shape_event(event), dict.fromkeys(Sections._fields, 0)
    return shaped | {name: none | shaped[name] for name in ("original_sections", "sent_sections")}


def show_list(events: Iterable[Outcome], console: Console | None = None) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("id", "time (UTC)", "model", "session", "outcome"):
        table.add_column(name, no_wrap=name != "model")
    add_figures(table, ("status", "original", "sent", "cost"))
    for event in events:
        table.add_row(
            safe(event.request_id[:12]),
            _write_time(event.at),
            safe(event.model),
            safe(event.session[:8]),
            safe(event.outcome),
            str(event.status),
            write_short(event.original_tokens) if event.original_tokens else "-",
            write_short(event.sent_tokens) if event.sent_tokens else "-",
            "-" if event.cost is None else write_cost(event.cost),
        )
    print_fitting(console or make_console(), table, ("status", "session", "original", "cost", "sent", "time (UTC)"))


def show(recording: Recording, changed: Changed, console: Console | None = None, *, with_diff: bool) -> None:
    console, event = console or make_console(), recording.event
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
        by = "written by the provider's own compaction" if recording.summary.note else by
        name = f", id {escape(recording.summary.id)}" if recording.summary.id else ""
        console.print(Text(f"\nSummary ({by}{name})", "bold"))
        told = recording.summary.text or (OPAQUE if recording.summary.note else "")
        console.print(safe(told, lines=True), soft_wrap=True)
    console.print()
    for line in _tell_answer(event):
        console.print(safe(line))
    if recording.is_redacted:
        console.print(
            "a key in the body is recorded as ***, so a replay is not byte for byte, and tokens may differ a little"
        )


def _tell_request(event: Outcome) -> list[str]:
    lines = [f"request {event.request_id} at {_write_time(event.at)} UTC, {event.method} {event.path}"]
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


def _make_sections(event: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, title=f"Tokens (limit {event.limit_tokens:,})", title_justify="left")
    table.add_column("section")
    add_figures(table, ("original", "sent"))
    for name, original, sent in zip(Sections._fields, event.original_sections, event.sent_sections, strict=True):
        table.add_row(name, f"{original:,}", f"{sent:,}")
    table.add_row("total", f"{event.original_tokens:,}", f"{event.sent_tokens:,}", style="bold")
    return table


def _show_decisions(event: Outcome, console: Console) -> None:
    if not event.decisions:
        return
    table = Table(box=None, pad_edge=False, title="Decisions", title_justify="left")
    table.add_column("rule", no_wrap=True)
    add_figures(table, ("attempt", "before", "after", "saved", "messages", "from"))
    table.add_column("reason")
    for one in event.decisions:
        saved = one.tokens_before - one.tokens_after
        figures = (one.attempt, one.tokens_before, one.tokens_after, saved, one.messages, one.first_changed)
        table.add_row(safe(one.rule), *(f"{number:,}" for number in figures), safe(one.reason))
    console.print()
    print_fitting(console, table, ("from", "attempt", "messages", "before", "after"))


def _show_changes(changed: Changed, console: Console, *, with_diff: bool) -> None:
    if changed.doubt:
        console.print(Text(f"\nnote: {escape(changed.doubt)}", "yellow"))
    if not changed.changes:
        return
    console.print(Text("\nChanged messages", "bold"))
    if not with_diff:
        # Messages that the same rules have removed share a line; any other change has its own.
        for _, group in groupby(changed.changes, lambda one: one.rules if one.fate is Fate.REMOVED else id(one)):
            console.print(safe(f"  {_tell_group(list(group))}"))
        return
    for change in changed.changes:
        console.print(safe(f"  {_tell_change(change)}"))
        for line in diff(change):
            console.print(Text(f"      {escape(line.expandtabs(4))}", STYLES.get(line[:1], "")), soft_wrap=True)


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


def _tell_answer(event: Outcome) -> list[str]:
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
        lines.append(f"cost {write_cost(event.cost)}; without trimtab {write_cost(event.without_cost)}")
    return lines


def _write_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


WITHOUT_SUMMARIES = (
    "cost and saved are without calls for summaries, which are recorded without a session; stats --by session has them"
)
NOT_RECORDED = (
    "nothing is recorded in {folder}; start the proxy with `trimtab record`, or set record.dir in the configuration"
)


@click.command()
@click.argument("request_id", metavar="[ID|last]", required=False)
@click.option("--diff", "with_diff", is_flag=True, help="Also print how each changed message differs.")
@click.option("--sent", is_flag=True, help="Print only the body that was sent to the upstream: what the model sees.")
@click.option("--received", is_flag=True, help="Print only the body that the client sent.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON. Money is in US dollars.")
@click.option("--sessions", "by_session", is_flag=True, help="Print a table of sessions, with their titles.")
@click.option("--session", help="Only requests of the session of this name, or of its beginning.")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Lines of the table.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the recordings. Default: record.dir of the configuration, else the one of `trimtab record`.",
)
@takes_config
def inspect(  # noqa: PLR0913 - the options of a command
    *,
    request_id: str | None,
    with_diff: bool,
    sent: bool,
    received: bool,
    as_json: bool,
    by_session: bool,
    limit: int,
    folder: Path | None,
    config_path: Path | None,
    settings: tuple[str, ...],
    **asked: str | None,
) -> None:
    """Show what trimtab did to a request.

    ID is the request's id or its beginning, as in the log and in the header x-trimtab-request-id; last is the newest
    request. Without it, print a table of the newest requests, or of sessions. Requests must be recorded: see
    `trimtab record`. The recordings contain the text of the conversation, and so does what this command prints.
    """
    if sent and received:
        raise click.UsageError("--sent and --received exclude each other")
    with wrong_use():
        place = find_folder(folder, config_path, settings)
    try:
        if by_session or (request_id is None and not (sent or received)):
            _list(place, limit, asked, by_session=by_session, as_json=as_json)
            return
        recording = _find(place, request_id or LAST, asked)
    except (NoRecordingError, BadRecordingError) as error:
        give_up(escape(str(error)))
    if sent or received:
        _print_body(recording, is_sent=sent)
        return
    configure_log("error")
    changed = find_changes(recording)
    if as_json:
        click.echo(orjson.dumps(describe(recording, changed, with_texts=with_diff), option=orjson.OPT_INDENT_2))
    else:
        show(recording, changed, with_diff=with_diff)


def find_folder(folder: Path | None, config_path: Path | None, settings: tuple[str, ...]) -> Path:
    """The folder to read from: the named one, the configured one, or the usual one. Raises ConfigError."""
    if folder is not None:
        return folder.expanduser()
    config = load_file(config_path, settings, is_online=False)
    return usual_recordings() if config.record is None else Path(config.record.dir).expanduser()


def _read(folder: Path, *, newest_first: bool = False) -> Iterator[Recording]:
    if not folder.is_dir() or not list_files(folder):
        give_up(escape(NOT_RECORDED.format(folder=folder)))
    return (one for one in read_all(folder, _tell_broken, newest_first=newest_first) if one.call is None)


def find_recorded(recordings: Iterable[Recording], query: SessionQuery) -> tuple[list[Session], int]:
    """The sessions of recordings, oldest recording first, and how many there are."""
    rows, titled = [], set[str]()
    with closing(open_in_memory()) as connection:
        attach(connection, ":memory:")
        for one in recordings:
            event = structs.replace(one.event, bill=one.bill, has_prompt=one.counted.original)
            if one.call is None and event.session:
                rows.append(Row.of(event, 1))
                if event.session not in titled:
                    titled.add(event.session)
                    keep_title(connection, event.session, event.at, Title(read_title(one), ""))
        add(connection, rows, Bounds(len(rows), 1 << 40, ttl_seconds=float("inf")))
        return list_sessions(connection, query)


def read_title(recording: Recording) -> str:
    """The beginning of what the user said first; empty if the body is not recorded, or cannot be read."""
    told, body = recording.request, recording.received_body
    if told is None or body is None or not told.dialect:
        return ""
    try:
        codec = name_codec(told.dialect)
        messages = codec.decode(codec.read(body), Counting(len, make_known())).messages
    except (UndecodableError, KeyError, ValueError):
        return ""
    return find_title(messages, NOTHING_HIDDEN)


def _list(folder: Path, limit: int, asked: Mapping[str, str | None], *, by_session: bool, as_json: bool) -> None:
    if by_session:
        query = read_query(limit, asked)  # before the recordings: a wrong column is named also if there are none
        found, total = find_recorded(_read(folder), query)
        show_sessions(found, total, as_json=as_json)
        if not as_json and any(one.cost is not None for one in found):
            click.echo(WITHOUT_SUMMARIES)
        return
    if asked["order"] or asked["find"]:
        raise click.UsageError("--sort and --find are for --sessions")
    every = (one.event for one in _read(folder, newest_first=True))
    events = list(islice((event for event in every if _is_wanted(event, asked)), limit))
    if as_json:
        click.echo(orjson.dumps([describe_event(event) for event in events], option=orjson.OPT_INDENT_2))
    elif events:
        show_list(events)
    else:
        give_up("no recorded request is like that")


def _find(folder: Path, request_id: str, asked: Mapping[str, str | None]) -> Recording:
    """The request with this id; the newest one of those that are wanted for `last`. Raises as `read_one` does."""
    if not any(asked.values()):
        if not folder.is_dir() or not list_files(folder):
            give_up(escape(NOT_RECORDED.format(folder=folder)))
        return read_one(folder, request_id, _tell_broken)
    if request_id != LAST or asked["order"] or asked["find"]:
        raise click.UsageError("an ID stands alone; --session, --model, --client and --outcome also go with last")
    found = next((one for one in _read(folder, newest_first=True) if _is_wanted(one.event, asked)), None)
    return found or give_up("no recorded request is like that")


def _is_wanted(event: Outcome, wanted: Mapping[str, str | None]) -> bool:
    has = {"model": {event.model, event.label}, "client": {event.client}, "outcome": {event.outcome}}
    session = wanted["session"]
    return (session is None or event.session.startswith(session)) and all(
        wanted[name] is None or wanted[name] in values for name, values in has.items()
    )


def _print_body(recording: Recording, *, is_sent: bool) -> None:
    body = recording.sent_body if is_sent else recording.received_body
    if body is None:
        what = "nothing was sent" if is_sent and recording.sent is None else "its body was not recorded"
        give_up(escape(f"{recording.id}: {what}; its outcome was {recording.event.outcome}"))
    if recording.is_redacted and HIDDEN in body:
        click.echo("trimtab: warning: *** stands for a key in the body", err=True)
    click.echo(body, nl=sys.stdout.isatty())


def _tell_broken(path: Path, reason: str) -> None:
    click.echo(f"trimtab: warning: {escape(str(path))}: {escape(reason)}", err=True)
