"""`trimtab serve`: runs the proxy as a process, with its signals, its limit of open files and its log.

`trimtab record` is the same command with the keys of `record` set.
"""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from typing import Any

import click
import orjson
import uvloop

from trimtab.proxy.cli.options import (
    config_option,
    give_up,
    log_format_option,
    log_level_option,
    set_option,
    usual_recordings,
    wrong_use,
)
from trimtab.proxy.cli.serving.greeting import Screen, warn_of_risks
from trimtab.proxy.cli.serving.supervise import Start, WorkerLog, start_workers
from trimtab.proxy.compaction.offload import SWITCH_SECONDS
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import split_address
from trimtab.proxy.exchange.services import Lifecycle
from trimtab.proxy.server.app import Proxy, run_proxy
from trimtab.proxy.server.garbage import collect_when_idle
from trimtab.proxy.server.reload import reload_when_told
from trimtab.proxy.server.workers.supervisor import END_AT_ONCE, count_workers
from trimtab.proxy.server.workers.worker import LEAVING, READY
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.telemetry.terminal import LiveLine, can_rewrite, shows_text


@click.command()
@click.option(
    "--upstream",
    metavar="URL",
    help="Server that requests go to; short for --set upstream.base_url=URL. Default: https://api.openai.com/v1.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on; short for --set listen=HOST:PORT. Default: 127.0.0.1:8790.",
)
@config_option
@set_option
@log_level_option
@log_format_option
def serve(
    upstream: str | None,
    listen: str | None,
    config_path: Path | None,
    settings: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Run the proxy until a signal stops it.

    SIGTERM or Ctrl-C lets requests in flight finish, for at most limits.drain_seconds (default: 20). A second signal
    ends the process at once. SIGHUP makes it read the --config file again.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its default would end the process before the loop handles it
    short = {"upstream.base_url": upstream, "listen": listen}
    everything = (*settings, *(f"{key}={value}" for key, value in short.items() if value))
    with wrong_use():
        config = load_file(config_path, everything)
    load_again = partial(load_file, config_path, everything, may_be_empty=False)
    form = log_format or config.log.format
    configure_log(log_level or config.log.level, form, clears_line=can_rewrite(form))
    screen = Screen(shows_text(form), LiveLine() if can_rewrite(form) else None)
    _raise_file_limit()
    load, count = load_again if config_path else None, count_workers(config)
    try:
        with wrong_use():
            if count == 1:
                _run(_serve(config, load, get_log(), screen))
                return
            start = start_workers(config, load, count, get_log(), screen)
            if isinstance(start, int):
                sys.exit(start)
            _run(_serve_as_worker(start, screen))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        addresses = tuple(filter(None, (config.listen, config.metrics_listen)))
        owners = _find_owners({split_address(each)[1] for each in addresses}) if error.errno == EADDRINUSE else ()
        who = f" by {' and '.join(owners)}" if owners else ""
        give_up(f"cannot listen on {' or '.join(addresses)}: {reason}{who}")


def _find_owners(ports: set[int]) -> tuple[str, ...]:
    """The processes that listen at one of these ports. Another user's are not found, and none off Linux."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            # Columns of proc(5): 1 is address:port in hexadecimal, 3 the state (0A: listens), 9 the socket's inode.
            rows = [line.split() for line in Path("/proc/net", table).read_text("ascii").splitlines()[1:]]
            sockets |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1][-4:], 16) in ports}
    owners = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # the process has ended meanwhile
            if str(link.readlink()) in sockets:
                # Its name only: arguments may have keys.
                owners.add(f"process {link.parts[2]} ({(link.parents[1] / 'comm').read_text('utf-8').strip()})")
    return tuple(sorted(owners))


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def _raise_file_limit() -> None:
    """Raise the limit of open files to the most that the system allows: each request needs two connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports an unlimited maximum that it then refuses
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: Config, load: Callable[[], Config] | None, log: Any, screen: Screen) -> None:
    stop, reload = asyncio.Event(), asyncio.Event()
    loop, lifecycle = asyncio.get_running_loop(), Lifecycle()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_end, number, stop, lifecycle, log)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    warn_of_risks(config, log)
    async with run_proxy(config, log, lifecycle=lifecycle) as proxy:
        screen.announce(config, proxy.url, proxy.metrics_url.removesuffix(config.metrics_path), log)
        async with screen.showing(proxy.services.recorder.metrics, log):
            await _serve_until(stop, reload, proxy, load, log)


async def _serve_as_worker(start: Start, screen: Screen) -> None:
    """Serve as one process of several, until the supervisor stops it or is gone. Each log line names the worker.

    A worker may get SIGTERM twice for one stop: from systemd or a terminal, and from the supervisor. So a second
    SIGTERM does not end it at once; END_AT_ONCE does.
    """
    worker = start.worker
    log = WorkerLog(get_log(), worker.number)
    stop, reload = asyncio.Event(), asyncio.Event()
    loop, lifecycle = asyncio.get_running_loop(), Lifecycle()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(END_AT_ONCE, _end_at_once, END_AT_ONCE, lifecycle, log)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    loop.add_reader(worker.line, worker.hear_end, stop.set)
    async with run_proxy(start.config, log, start.compactors, lifecycle, worker=worker) as proxy:
        worker.tell(READY)
        async with screen.of(worker.number).showing(proxy.services.recorder.metrics, log):
            await _serve_until(stop, reload, proxy, start.load, log)
        worker.tell(LEAVING)
        loop.remove_reader(worker.line)


async def _serve_until(
    stop: asyncio.Event, reload: asyncio.Event, proxy: Proxy, load: Callable[[], Config] | None, log: Any
) -> None:
    """Until `stop` is set: read the configuration again each time `reload` is set, and collect garbage when idle."""
    sys.setswitchinterval(SWITCH_SECONDS)
    collecting = Tasks(lambda error: log.error("collecting_failed", error=type(error).__name__))
    _ = collecting.start(collect_when_idle(proxy.services.lifecycle.idle.is_set))
    reloading = Tasks(lambda error: log.error("reload_failed", error=type(error).__name__))
    _ = reloading.start(reload_when_told(reload, proxy.current, load, log))
    await stop.wait()
    await reloading.close()
    await collecting.close()
    limits = proxy.services.config.limits
    log.info("draining", seconds=limits.drain_seconds, delay_seconds=limits.shutdown_delay_seconds)


def _stop_or_end(number: signal.Signals, stop: asyncio.Event, lifecycle: Lifecycle, log: Any) -> None:
    """At the first signal, make the proxy drain; at the second, end the process."""
    if stop.is_set():
        _end_at_once(number, lifecycle, log)
    stop.set()


def _end_at_once(number: signal.Signals, lifecycle: Lifecycle, log: Any) -> None:
    """End the process, whatever still runs. Its status is 128 plus the signal's number, as in shells.

    Connections are reset first, so that no client takes a broken-off response for a complete one.
    """
    try:
        log.warning("ended_at_once", signal=number.name, requests=lifecycle.in_flight)
        lifecycle.reset_clients()
    finally:
        os._exit(128 + number)


def _record(folder: Path | None, keep: int | None, max_bytes: int | None, **given: Any) -> None:
    """Run the proxy, and record every request.

    Recordings contain the text of messages, but no keys. They are files that only their owner can read, in --dir. Look
    at them with `trimtab inspect`, or play them again with `trimtab replay`. All other options are those of
    `trimtab serve`.
    """
    if folder is None and not _names_folder(given["config_path"], given["settings"]):
        folder = usual_recordings()
    wanted = {"dir": folder and str(folder), "keep": keep, "max_bytes": max_bytes}
    # As JSON, which is YAML, too: a path may look like another value.
    added = tuple(f"record.{key}={orjson.dumps(value).decode()}" for key, value in wanted.items() if value is not None)
    click.get_current_context().invoke(serve, **given | {"settings": (*given["settings"], *added)})


def _names_folder(config_path: Path | None, settings: tuple[str, ...]) -> bool:
    """Whether the configuration has `record.dir`. If it has an error, it has not: that may be the missing folder."""
    try:
        return load_file(config_path, settings, is_online=False).record is not None
    except ConfigError:
        return False


_OPTIONS = [
    click.Option(
        ["--dir", "folder"],
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the recordings; short for --set record.dir=DIR. Default: record.dir of the configuration, "
        "else the folder recordings in the user's data directory.",
    ),
    click.Option(
        ["--keep"],
        type=click.IntRange(min=1),
        help="Number of newest requests that are kept; short for --set record.keep=N. Default: 10000.",
    ),
    click.Option(
        ["--max-bytes"],
        type=click.IntRange(min=1024 * 1024),
        help="Size in bytes that all recordings together may have; short for --set record.max_bytes=N. Default: 1 GiB.",
    ),
]

record = click.Command("record", params=[*_OPTIONS, *serve.params], callback=_record, help=_record.__doc__)
