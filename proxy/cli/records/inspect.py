"""`trimtab inspect`: what was done to a request, from its recording."""

import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import click
import orjson

from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.account.recordings.folder import LAST, NoRecordingError, list_files, read_all, read_one
from trimtab.proxy.account.recordings.format import BadRecordingError, Recording
from trimtab.proxy.account.redact import HIDDEN
from trimtab.proxy.cli.options import config_option, give_up, set_option, usual_recordings, wrong_use
from trimtab.proxy.cli.records.sessions import filter_options, find_recorded, read_query, show_sessions
from trimtab.proxy.cli.records.showing import describe, describe_event, find_changes, show, show_list
from trimtab.proxy.config.load import load_file
from trimtab.proxy.telemetry.logs import configure_log, escape

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
@config_option
@set_option
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
        message = "--sent and --received exclude each other"
        raise click.UsageError(message)
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
    else:
        _print(recording, with_diff=with_diff, as_json=as_json)


def find_folder(folder: Path | None, config_path: Path | None, settings: tuple[str, ...]) -> Path:
    """The folder to read from: the named one, the configured one, or the usual one. Raises ConfigError."""
    if folder is not None:
        return folder.expanduser()
    config = load_file(config_path, settings, is_online=False)
    return usual_recordings() if config.record is None else Path(config.record.dir).expanduser()


def _read(folder: Path, *, newest_first: bool = False) -> Iterator[Recording]:
    """The recordings of requests."""
    if not folder.is_dir() or not list_files(folder):
        give_up(escape(NOT_RECORDED.format(folder=folder)))
    return (one for one in read_all(folder, _tell_broken, newest_first=newest_first) if one.call is None)


def _list(folder: Path, limit: int, asked: Mapping[str, str | None], *, by_session: bool, as_json: bool) -> None:
    if by_session:
        show_sessions(*find_recorded(_read(folder), read_query(limit, asked)), as_json=as_json)
        return
    if asked["order"] or asked["find"]:
        message = "--sort and --find are for --sessions"
        raise click.UsageError(message)
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
        message = "an ID stands alone; --session, --model, --client and --outcome also go with last"
        raise click.UsageError(message)
    found = next((one for one in _read(folder, newest_first=True) if _is_wanted(one.event, asked)), None)
    return found or give_up("no recorded request is like that")


def _is_wanted(event: Outcome, wanted: Mapping[str, str | None]) -> bool:
    has = {"model": {event.model, event.label}, "client": {event.client}, "outcome": {event.outcome}}
    session = wanted["session"]
    return (session is None or event.session.startswith(session)) and all(
        wanted[name] is None or wanted[name] in values for name, values in has.items()
    )


def _print(recording: Recording, *, with_diff: bool, as_json: bool) -> None:
    configure_log("error")
    changed = find_changes(recording)
    if as_json:
        click.echo(orjson.dumps(describe(recording, changed, with_texts=with_diff), option=orjson.OPT_INDENT_2))
    else:
        show(recording, changed, with_diff=with_diff)


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
