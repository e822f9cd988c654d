"""The command line: `trimtab serve | check | doctor | healthcheck | compact | count | demo | schema`.

Wrong arguments and wrong configuration end with status 2 and sentences that say what is allowed.
"""

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, ParamSpec

import click
import orjson
import uvloop

from proxy.cli.healthcheck import healthcheck
from proxy.cli.options import config_option, log_format_option, log_level_option, set_option
from proxy.compaction.compactor import Compacted
from proxy.compaction.pool import Compactors
from proxy.config.errors import ConfigError
from proxy.config.load import find_route_fault, load_file
from proxy.config.schema import Config
from proxy.exchange.services import Lifecycle
from proxy.server.app import run_proxy, stop_or_end
from proxy.server.reload import reload_when_told, tell_proxies, warn_of_open_addresses
from proxy.state.models.view import ModelView
from proxy.telemetry.logs import configure_log, get_log
from proxy.wire.chat.message import UndecodableError
from proxy.wire.chat.request import read_damaged_request, read_request
from rules.pipeline.plan import LimitExceededError

WRONG_USE = 2
P = ParamSpec("P")


@contextmanager
def _wrong_use() -> Iterator[None]:
    """Says what is wrong with the configuration, a line each, and ends with status 2."""
    try:
        yield
    except ConfigError as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(WRONG_USE)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="trimtab", prog_name="trimtab")
def main() -> None:
    """A proxy that keeps long LLM sessions inside the context window.

    Point OPENAI_BASE_URL at it; what it need not touch passes through byte for byte.
    """


@main.command()
@click.option("--upstream", metavar="URL", help="Where requests go; short for --set upstream.base_url=URL.")
@click.option("--listen", metavar="HOST:PORT", help="Short for --set listen=HOST:PORT.")
@config_option
@set_option
@log_level_option
@log_format_option
def serve(
    upstream: str | None,
    listen: str | None,
    config_path: Path | None,
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Run the proxy until it is stopped. SIGTERM or Ctrl-C drains it, a second one ends it at once.

    SIGHUP has it read the --config file again.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the loop takes it
    short = {"upstream.base_url": upstream, "listen": listen}
    everything = (*settings, *(f"{key}={value}" for key, value in short.items() if value))
    with _wrong_use():
        config = load_file(config_path, everything)
    load_again = partial(load_file, config_path, everything, may_be_empty=False)
    configure_log(log_level, log_format)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            with _wrong_use():
                runner.run(_serve(config, load_again if config_path else None))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            where = " or ".join(filter(None, (config.listen, config.metrics_listen)))
            click.echo(f"trimtab: cannot listen on {where}: {reason}", err=True)
            sys.exit(1)


def _raise_file_limit() -> None:
    """Take all the file descriptors that the system allows: a connection needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS calls unlimited what it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: Config, load: Callable[[], Config] | None) -> None:
    log = get_log()
    stop, reload = asyncio.Event(), asyncio.Event()
    loop, lifecycle = asyncio.get_running_loop(), Lifecycle()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_or_end, number, stop, lifecycle, log)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    warn_of_open_addresses(config, log)
    async with run_proxy(config, log, lifecycle=lifecycle) as proxy:
        gc.freeze()  # what is there from the start stays: full collections of it held the loop for 50 ms and more
        upstream, metrics = config.upstream.base_url, proxy.metrics_url
        log.info("listening", url=f"{proxy.url}/v1", upstream=upstream, mode=config.mode, metrics=metrics)
        tell_proxies(config, log)
        reloading = loop.create_task(reload_when_told(reload, proxy.current, load, log))
        await stop.wait()
        reloading.cancel()
        limits = proxy.services.config.limits
        log.info("draining", seconds=limits.drain_seconds, delay_seconds=limits.shutdown_delay_seconds)


main.add_command(healthcheck)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@set_option
def check(file: Path, settings: tuple[str, ...]) -> None:
    """Validate a configuration FILE; every mistake is named."""
    with _wrong_use():
        config = load_file(file, settings, is_online=False)
    if (fault := find_route_fault(config)) is not None:  # of the machine that checks, not of the file
        click.echo(f"trimtab: warning: {fault}", err=True)
    click.echo(f"{file}: valid; {len(config.models)} model entries, upstream {config.upstream.base_url}")


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    click.echo(orjson.dumps(Config.model_json_schema(), option=orjson.OPT_INDENT_2))


@main.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--jsonl", is_flag=True, help="One request in each line, in and out.")
@click.option("--explain", is_flag=True, help="Say on standard error what each rule did.")
@config_option
@set_option
def compact(
    file: IO[bytes], *, jsonl: bool, explain: bool, config_path: Path | None, settings: tuple[str, ...]
) -> None:
    """Compact a request body from FILE (or standard input) without any network.

    The body as it would be forwarded goes to standard output; the digest stands where a summary would.
    """
    with _wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())
    failed = False
    bodies = (line.rstrip(b"\n") for line in file) if jsonl else iter([file.read()])
    for number, body in enumerate(bodies, start=1):
        place = f"line {number}: " if jsonl else ""
        try:
            compacted = _compact(body, config, compactors)
        except (UndecodableError, LimitExceededError) as error:
            reason = "no chat request" if isinstance(error, UndecodableError) else str(error)
            click.echo(f"trimtab: {place}{reason}", err=True)
            if jsonl:
                click.echo(body)  # line by line, what comes out answers to what went in
            failed = True
            continue
        click.echo(compacted.body, nl=jsonl)
        if explain:
            _explain(place, compacted)
    sys.exit(1 if failed else 0)


def _compact(body: bytes, config: Config, compactors: Compactors) -> Compacted:
    try:
        request = read_request(body)
    except UndecodableError:
        request = read_damaged_request(body)
    view = ModelView.of_unmet(config, request.model)
    compactor = compactors.choose(view.settings, request.model)
    return compactor.apply(compactor.plan(request, view.policy), None)


def _explain(place: str, compacted: Compacted) -> None:
    click.echo(
        f"{place}{compacted.original_tokens} tokens, {compacted.sent_tokens} sent, limit {compacted.limit_tokens}",
        err=True,
    )
    for item in compacted.decisions:
        click.echo(
            f"{place}{item.rule}: {item.reason}; saved {item.saved_tokens} tokens,"
            f" first changed message {item.first_changed}",
            err=True,
        )


@main.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--jsonl", is_flag=True, help="One request in each line; one line of JSON out for each.")
@click.option("--model", help="Count for this model instead of the one that the request names.")
@click.option("--table/--json", "as_table", default=None, help="A table is for terminals, JSON for all else.")
@config_option
@set_option
def count(
    file: IO[bytes],
    *,
    jsonl: bool,
    model: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Count the tokens of a request body from FILE (or standard input), by section. No network."""
    from rich.console import Console  # noqa: PLC0415 - of no use to `serve`

    from proxy.cli.count import tally_body  # noqa: PLC0415 - the same

    with _wrong_use():
        config = load_file(config_path, settings, is_online=False)
    configure_log()
    compactors = Compactors(get_log())
    failed = False
    bodies = (line.rstrip(b"\n") for line in file) if jsonl else iter([file.read()])
    for number, body in enumerate(bodies, start=1):
        try:
            tally = tally_body(body, model, config, compactors)
        except UndecodableError:
            click.echo(f"trimtab: {f'line {number}: ' if jsonl else ''}no chat request", err=True)
            if jsonl:
                click.echo(b'{"error":"no chat request"}')
            failed = True
            continue
        if as_table if as_table is not None else sys.stdout.isatty() and not jsonl:
            tally.print_table(Console())
        else:
            click.echo(tally.write_json())
    sys.exit(1 if failed else 0)


@main.command()
@click.option("--model", "models", multiple=True, metavar="NAME", help="A model to look at; may be given again.")
@click.option(
    "--key-from-env",
    metavar="NAME",
    help="Show the key in this environment variable to the main upstream, where the configuration has none for it.",
)
@click.option("--table/--json", "as_table", default=None, help="Tables are for terminals, JSON for all else.")
@config_option
@set_option
def doctor(
    *,
    models: tuple[str, ...],
    key_from_env: str | None,
    as_table: bool | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Look whether the proxy will work here: upstreams, windows, counting, store, address. What to do is said."""
    from rich.console import Console  # noqa: PLC0415 - of no use to `serve`

    from proxy.cli.doctor.report import examine  # noqa: PLC0415 - the same

    key = os.environ.get(key_from_env, "") if key_from_env is not None else None
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        message = "there is no key in this variable of the environment"
        raise click.BadParameter(message, param_hint="--key-from-env")
    with _wrong_use(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        config = load_file(config_path, settings)
        report = runner.run(examine(config, models, key))
    if as_table if as_table is not None else sys.stdout.isatty():
        report.print_tables(Console())
    else:
        click.echo(report.write_json())
    sys.exit(1 if report.will_fail else 0)


@main.command()
@click.option("--keep", is_flag=True, help="Leave the proxy and the simulated upstream running.")
def demo(*, keep: bool) -> None:
    """Replay a long agent session through the proxy, against a simulated upstream. No key, no network."""
    from proxy.cli.demo.command import run_demo  # noqa: PLC0415 - rich and the session are of no use to `serve`

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_demo(keep=keep))
