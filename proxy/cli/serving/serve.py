"""`trimtab serve`: runs the proxy as a process or as several: signals, the limit of open files, the log, and garbage.

`trimtab record` is the same command with the keys of `record` set.

Law: a person is told something on standard error only, and only if it is a terminal on which the log is text. What
workers only read is loaded before they are forked, so that they share its memory. What concerns all of them is logged
once. No request waits for a full collection of garbage, unless requests have arrived without a pause for MOST_SECONDS:
then one runs in spite of them, so that memory does not grow. Objects that exist at the start are never examined again.
"""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson
import uvloop
from msgspec.structs import replace

from trimtab.proxy.cli.options import (
    give_up,
    list_exports,
    log_format_option,
    log_level_option,
    takes_config,
    usual_recordings,
    wrong_use,
)
from trimtab.proxy.compaction.offload import SWITCH_SECONDS
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.schema import Config
from trimtab.proxy.config.values import split_address
from trimtab.proxy.exchange.services import Lifecycle
from trimtab.proxy.server.app import Proxy, run_proxy
from trimtab.proxy.server.reload import (
    keep_fixed,
    measure_caches,
    reload_when_told,
    tell_failed,
    tell_upstreams,
    warn_of_readers,
    warn_of_recording,
    warn_of_unknown_variables,
)
from trimtab.proxy.server.workers.supervisor import END_AT_ONCE, Program, Supervisor, count_workers
from trimtab.proxy.server.workers.worker import LEAVING, READY, SharedResources, Worker
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.logs import LEVELS, LiveLine, can_rewrite, configure_log, get_log, shows_text
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Savings
from trimtab.proxy.telemetry.shared import Reloads
from trimtab.rules.text.late import compile_all

PAUSE_SECONDS = 1.0  # between two states of the live line. Chosen: a person reads no faster.
DRAWER = 1  # the number of the worker that shows the live line of all


class Screen(msgspec.Struct, frozen=True):
    is_read: bool = False  # whether a person reads it
    line: LiveLine | None = None  # the live line; None if the terminal cannot show one

    def of(self, worker: int) -> "Screen":
        return self if worker == DRAWER else replace(self, line=None)

    def greet(self, config: Config, url: str, pages_url: str) -> None:
        if not self.is_read:
            return
        lines = ["  In the client's terminal:", *(f"    {line}" for line in list_exports(config, url))]
        if config.dashboard.enabled:
            key = "  (the password is admin_token)" if config.admin_token is not None else ""
            lines += [f"  Dashboard: {pages_url}/trimtab/{key}"]
        click.echo("\n".join(lines), err=True)

    def announce(self, config: Config, url: str, pages_url: str, log: Any, workers: int | None = None) -> None:
        """Log that requests are accepted, with what an operator must know, and greet. `workers`: None for one."""
        upstream, metrics, mode = config.upstream.base_url, pages_url + config.metrics_path, config.tell_modes()
        several = {} if workers is None else {"workers": workers}
        log.info("listening", url=f"{url}/v1", upstream=upstream, mode=mode, metrics=metrics, **several)
        tell_upstreams(config, log)
        warn_of_recording(config, log)
        self.greet(config, url, pages_url)
        if address := os.environ.get("NOTIFY_SOCKET"):  # systemd started us as `Type=notify`. Source: sd_notify(3).
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
                told.connect(f"\0{address[1:]}" if address.startswith("@") else address)
                told.send(b"READY=1")

    @asynccontextmanager
    async def showing(self, metrics: Metrics, log: Any) -> AsyncIterator[None]:
        """Show what is saved, once a second from the first request on, while the block runs. The last line stays."""
        if self.line is None:
            yield
            return
        line, tasks = self.line, Tasks(lambda error: log.error("live_line_failed", error=type(error).__name__))

        async def show_again_and_again() -> None:
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                await _show(metrics, line)

        _ = tasks.start(show_again_and_again())
        try:
            yield
        finally:
            await tasks.close()
            await _show(metrics, line)
            line.end()


def warn_of_risks(config: Config, log: Any, workers: int = 1) -> None:
    warn_of_readers(config, log)
    warn_of_unknown_variables(log)
    if workers > 1 and config.store == "memory":
        meaning = "workers do not share their summaries, nor what they learn about models; see store"
        log.warning("store_not_shared", store=config.store, meaning=meaning)


async def _show(metrics: Metrics, line: LiveLine) -> None:
    savings = await asyncio.to_thread(Savings.read, metrics)
    if savings.requests:
        line.show(", ".join([savings.describe(), *savings.describe_cuts()]))


Load = Callable[[], Config]


class WorkerStart(msgspec.Struct, frozen=True):
    worker: Worker
    config: Config  # the worker's share of the configuration
    load: Load | None  # reads this share again; None without a configuration file
    compactors: Compactors


class WorkerLog:
    def __init__(self, log: Any, worker: int) -> None:
        levels = (partial(getattr(log, level), worker=worker) for level in LEVELS)
        self.debug, self.info, self.warning, self.error = levels


class _LatestConfig:
    """The configuration for workers that start later. Logs each event about it once, for all workers together."""

    def __init__(self, config: Config, load: Load | None, log: Any, screen: Screen, reloads: Reloads) -> None:
        self.config = config
        self._screen = screen
        self._load = load
        self._log = log
        self._reloads = reloads

    def reload(self) -> bool:
        """Read the configuration again. Return whether it is valid, so that workers should read it, too."""
        if self._load is None:
            self._log.info("nothing_to_reload", meaning="there is no configuration file; see --config")
            return False
        try:
            config = self._load()
        except (ConfigError, OSError, ValueError, LookupError, TypeError, RecursionError, MemoryError) as error:
            tell_failed(error, self._log, self._reloads.write)
            return False
        self.config, _ = keep_fixed(self.config, config)
        self._reloads.write(time.time())
        return True

    def drain_seconds(self) -> float:
        return self.config.limits.shutdown_delay_seconds + self.config.limits.drain_seconds

    def tell_ready(self, shared: SharedResources) -> None:
        url, pages_url = shared.requests.url, (shared.pages or shared.requests).url
        self._screen.announce(self.config, url, pages_url, self._log, workers=shared.count)


def start_workers(config: Config, load: Load | None, count: int, log: Any, screen: Screen) -> WorkerStart | int:
    """Run `count` workers.

    Returns twice: in each worker's process at once, with what the worker starts with; in this process when all workers
    have ended, with the exit status. Raises OSError before the first worker starts if it cannot listen.
    """
    shared = SharedResources.open(config, count)
    told = _LatestConfig(config, load, log, screen, shared.metrics.reloads)
    warn_of_risks(config, log, count)
    compactors = Compactors(log, caches_bytes=measure_caches(config.as_worker_of(count)))
    compactors.load()
    compile_all()
    program = Program(told.reload, told.drain_seconds, lambda: told.tell_ready(shared))
    gc.collect()
    gc.freeze()  # else a collection in a worker would write to, and so copy, the shared memory
    worker = Supervisor(shared, program, log).run()
    if isinstance(worker, int):
        return worker
    load_part = None if load is None else lambda: load().as_worker_of(count)
    return WorkerStart(worker, told.config.as_worker_of(count), load_part, compactors)


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
@takes_config
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
    load = partial(load_file, config_path, everything, may_be_empty=False) if config_path else None
    form = log_format or config.log.format
    configure_log(log_level or config.log.level, form, clears_line=can_rewrite(form))
    screen = Screen(shows_text(form), LiveLine() if can_rewrite(form) else None)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # each request needs two; macOS reports an unlimited maximum that it refuses
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    try:
        with wrong_use():
            if (count := count_workers(config)) == 1:
                uvloop.run(_serve(config, load, get_log(), screen))
                return
            start = start_workers(config, load, count, get_log(), screen)
            if isinstance(start, int):
                sys.exit(start)
            uvloop.run(_serve_as_worker(start, screen))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        addresses = tuple(filter(None, (config.listen, config.metrics_listen)))
        owners = _find_owners({split_address(each)[1] for each in addresses}) if error.errno == EADDRINUSE else ()
        reason += f" by {' and '.join(owners)}" if owners else ""
        give_up(f"cannot listen on {' or '.join(addresses)}: {reason}")


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


async def _serve(config: Config, load: Callable[[], Config] | None, log: Any, screen: Screen) -> None:
    stop, reload = asyncio.Event(), asyncio.Event()
    loop, lifecycle = asyncio.get_running_loop(), Lifecycle()

    def stop_or_end(number: signal.Signals) -> None:
        if stop.is_set():  # the second signal
            _end_at_once(number, lifecycle, log)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_or_end, number)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    warn_of_risks(config, log)
    async with run_proxy(config, log, lifecycle=lifecycle) as proxy:
        screen.announce(config, proxy.url, proxy.metrics_url.removesuffix(config.metrics_path), log)
        async with screen.showing(proxy.services.recorder.metrics, log):
            await _serve_until(stop, reload, proxy, load, log)


async def _serve_as_worker(start: WorkerStart, screen: Screen) -> None:
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


def _end_at_once(number: signal.Signals, lifecycle: Lifecycle, log: Any) -> None:
    """End with 128 plus the signal's number, as shells do; reset connections first, or answers would look complete."""
    try:
        log.warning("ended_at_once", signal=number.name, requests=lifecycle.in_flight)
        lifecycle.reset_clients()
    finally:
        os._exit(128 + number)


def _record(folder: Path | None, **given: Any) -> None:
    """Run the proxy, and record every request.

    Recordings contain the text of messages, but no keys. They are files that only their owner can read, in --dir. Look
    at them with `trimtab inspect`, or play them again with `trimtab replay`. All other options are those of
    `trimtab serve`.
    """
    if folder is None:
        try:
            config = load_file(given["config_path"], given["settings"], is_online=False)
            folder = usual_recordings() if config.record is None else None
        except ConfigError:  # it may be that of the missing folder; `serve` reports any other
            folder = usual_recordings()
    # As JSON, which is YAML, too: a path may look like another value.
    added = () if folder is None else (f"record.dir={orjson.dumps(str(folder)).decode()}",)
    click.get_current_context().invoke(serve, **given | {"settings": (*given["settings"], *added)})


_FOLDER = click.Option(
    ["--dir", "folder"],
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the recordings; short for --set record.dir=DIR. Default: record.dir of the configuration, "
    "else the folder recordings in the user's data directory.",
)
record = click.Command("record", params=[_FOLDER, *serve.params], callback=_record, help=_record.__doc__)

YOUNG_OBJECTS = 5_000  # New objects that are collected together. Measured: 0.1 ms for 5,000, 0.013 ms for 700.
YOUNG_COLLECTIONS = 10  # Young collections before one of the middle generation. Measured: 2.3 ms for 50,000 objects.
NEVER = 1_000_000_000  # a threshold that is never reached
LOOK_SECONDS = 0.5  # chosen: idle means idle at two looks in a row
LEAST_SECONDS = 5.0  # Between two full collections when idle. Chosen: one costs some 50 ms of processor time.
MOST_SECONDS = 60.0  # Between two full collections under load. Chosen: bounds the garbage that can pile up.


async def collect_when_idle(is_idle: Callable[[], bool]) -> None:
    """Until cancelled, run full collections when no request is in flight; then restore Python's own settings."""
    before, loop = gc.get_threshold(), asyncio.get_running_loop()
    gc.collect()
    gc.freeze()  # full collections of the objects that exist at the start held the loop for 50 ms and more
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
    collected_at, was_idle = loop.time(), False
    try:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            idle, was_idle = is_idle() and was_idle, is_idle()
            if is_due(loop.time() - collected_at, gc.get_count()[2], is_idle=idle):
                gc.collect()
                collected_at = loop.time()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def is_due(seconds: float, left_behind: int, *, is_idle: bool) -> bool:
    """Whether a full collection is due. left_behind: middle ones since the last. is_idle: at the last two looks."""
    return left_behind > 0 and seconds >= (LEAST_SECONDS if is_idle else MOST_SECONDS)
