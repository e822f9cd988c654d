"""`trimtab replay`: what trimtab has saved or would save, from recordings, a log, or request bodies."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson

from trimtab.proxy.account.recordings.folder import list_files
from trimtab.proxy.cli.options import WRONG_USE, dialect_option, give_up, prints_table, table_option, wrong_use
from trimtab.proxy.cli.records.inputs import is_log
from trimtab.proxy.cli.records.report import describe, list_points, list_settings, print_curve, print_report
from trimtab.proxy.cli.records.run import Needed, Replay, draw
from trimtab.proxy.cli.records.sums import VariantSums
from trimtab.proxy.cli.records.variants import ConfiguredVariants
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.telemetry.logs import configure_log, get_log

RECORDINGS, LOG, BODIES = "recordings", "log", "bodies"
INTERRUPTED = 130  # Exit status. Source: the convention of shells for SIGINT, 128 and the signal's number.
_EXPECTED = {
    RECORDINGS: "expected recordings of the key record.dir: files whose names end with .json.gz",
    LOG: "expected lines of the event request, as `trimtab serve` logs them in the format json",
    BODIES: "expected a folder of recordings, a log in the format json, or a file with a request body in each line",
}


class Options(msgspec.Struct, frozen=True):
    config_path: Path | None
    against: Path | None
    settings: tuple[str, ...]
    dialect: str | None
    model: str | None
    turns: bool
    check: bool
    as_table: bool | None
    plot: Path | None
    curve: bool
    newest: int | None


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="Replay with this configuration. Recordings are compared with what was recorded. Cuts at cold caches are as "
    "recorded: those of this configuration, and the summaries written ahead for them, are not expected.",
)
@click.option("--against", type=click.Path(path_type=Path), help="Compare with this configuration instead.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="DOTTED.KEY=VALUE",
    help="Set one key of the configuration of --config. Repeatable.",
)
@dialect_option
@click.option("--model", metavar="NAME", help="Model of the bodies in a file, instead of the one that they name.")
@click.option(
    "--turns",
    is_flag=True,
    help="Take each body in a file as a whole session, and replay all requests that its client has sent.",
)
@click.option(
    "--check",
    is_flag=True,
    help="End with status 1 if tokens, decisions or a byte of what was sent differ, or if anything cannot be read.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also draw a picture: .svg or .png.")
@click.option(
    "--curve",
    is_flag=True,
    help="Replay with each economy and with a few thresholds, and tell what each costs and keeps. Kept are the "
    "identifiers (paths, names, ids, numbers) of the next answer that are still forwarded.",
)
@click.option("--newest", type=click.IntRange(min=1), metavar="NUMBER", help="Only the newest recordings of a folder.")
@table_option
def replay(path: Path, **given: Any) -> None:
    """Replay recorded requests: what trimtab has saved, and what another configuration would save.

    PATH is a folder of recordings (key `record`), a log of `trimtab serve` in the format json, or a file with a request
    body in each line. No network is used, and no model is asked. Costs are compared with sending all requests
    unchanged, and with a sliding window that drops the oldest messages.
    """
    options = Options(**given)
    if options.against is not None and not (options.config_path or options.settings):
        raise click.UsageError("--against needs --config or --set")
    if options.curve and (options.against or options.plot or options.check):
        raise click.UsageError("--curve cannot be combined with --against, --plot or --check")
    if options.plot is not None and options.plot.suffix not in {".svg", ".png"}:
        raise click.BadParameter("the name must end with .svg or .png", param_hint="--plot")
    done: list[Replay] = []
    try:
        report = _run(path, options, done)
    except KeyboardInterrupt:
        number = done[0].requests if done else 0
        give_up(f"stopped after {number} requests; nothing was changed", INTERRUPTED)
    if prints_table(as_table=options.as_table):
        (print_curve if options.curve else print_report)(report)
    else:
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    if not report["input"]["requests"] + sum(model["summaries"] for model in done[0].variants[0].describe()["models"]):
        give_up(f"{path} holds nothing to replay; {_EXPECTED[report['input']['kind']]}")
    sys.exit(1 if options.check and (report["unreadable"]["number"] or report["differing"]["number"]) else 0)


def _run(path: Path, options: Options, done: list[Replay]) -> dict[str, Any]:
    kind = find_kind(path)
    with wrong_use():
        replaying = _prepare(kind, options)
    done.append(replaying)
    _read(replaying, kind, path, options)
    if options.plot is not None:
        with wrong_use():
            draw(replaying.series, options.plot)
    return (list_points if options.curve else describe)(replaying, kind, path)


def find_kind(path: Path) -> str:
    if path.is_dir():
        return RECORDINGS
    if not path.is_file():  # it is read twice, and a pipe can be read only once
        message = f"{path} is neither a folder nor a regular file; save what it gives in a file first"
        raise click.BadParameter(message, param_hint="PATH")
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    return LOG if is_log(first) else BODIES


def _prepare(kind: str, options: Options) -> Replay:
    if kind == LOG and (options.config_path is not None or options.settings or options.curve):
        message = "a log holds no messages, so another configuration cannot be replayed from it; record requests"
        give_up(f"{message} (key record)", WRONG_USE)
    configure_log("error")
    compactors = Compactors(get_log())
    configs = _load_configs(kind, options)
    configured = {name: ConfiguredVariants(compactors, config) for name, config in configs.items()}
    first = {RECORDINGS: ["recorded"], LOG: ["log"]}.get(kind, []) if options.against is None else []
    needed = Needed() if options.curve else None
    return Replay(compactors, [VariantSums(name) for name in (*first, *configured)], configured, needed=needed)


def _load_configs(kind: str, options: Options) -> dict[str, Config]:
    if options.curve:
        return list_settings(load_file(options.config_path, options.settings, is_online=False))
    configs: dict[str, Config] = {}
    if options.against is not None:
        configs[str(options.against)] = load_file(options.against, (), is_online=False)
    if options.config_path is not None or options.settings or kind == BODIES:
        name = ", ".join((*([str(options.config_path)] if options.config_path else []), *options.settings))
        configs[name or "defaults"] = load_file(options.config_path, options.settings, is_online=False)
    return configs


def _read(replaying: Replay, kind: str, path: Path, options: Options) -> None:
    files = list_files(path)[-options.newest if options.newest else 0 :] if kind == RECORDINGS else []
    total = len(files) if kind == RECORDINGS else path.stat().st_size
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=total, label="replaying", file=sys.stderr, hidden=hidden) as bar:
        if kind == RECORDINGS:
            replaying.read_recordings(files, bar.update)
        elif kind == LOG:
            replaying.read_log(path, bar.update)
        else:
            model, turns = options.model, options.turns
            replaying.read_bodies(path, bar.update, dialect=options.dialect, model=model, turns=turns)
