"""`trimtab wrap`: runs a command with the proxy in front of its models, and tells what was saved.

Law: the proxy listens on loopback only, and ends with the command. A client's credential goes to the server that it
would have gone to without trimtab, unless the user names another. The command runs in this terminal, as if it had been
started there; standard output is its alone. A signal reaches it once. Its exit status is handed on.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from enum import Enum
from pathlib import Path

import click
import msgspec
import orjson
import uvloop

from trimtab.proxy.account.alarms import NEWEST, find_alarms
from trimtab.proxy.account.outcome import Outcome
from trimtab.proxy.cli.options import WRONG_USE, give_up, takes_config, wrong_use
from trimtab.proxy.cli.serving.agents import Wiring, Write, find_agent, list_agents
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_file
from trimtab.proxy.config.network import OPENAI_HOST, PROXY_VARIABLES, read_host
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.app import run_proxy
from trimtab.proxy.server.reload import measure_caches
from trimtab.proxy.telemetry.logs import configure_log, get_log
from trimtab.proxy.telemetry.savings import Samples, Savings, count

FIXED = ("listen=127.0.0.1:0", "metrics_listen=null", "workers=1")
"""Settings of every wrapped proxy: a free port of this machine, and one process."""
DRAIN_SECONDS = 1.0  # For requests that the command leaves behind. Chosen: nobody waits for their answers any more.
_LOOPBACK = ("127.0.0.1", "localhost")
SUCCESS = 200  # source: the status of a request that was answered
NOT_FOUND = 127
NOT_EXECUTABLE = 126
KILLED = 128
"""Exit statuses; the last one plus the signal's number. Source: POSIX, Shell & Utilities, 2.8.2."""
OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)  # A terminal sends them to the command, too
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class CannotRunError(Exception):
    """The command cannot be started; `status` is the exit status for that."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def run_child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end. Returns its exit status as a shell does. Raises CannotRunError.

    Signals that only this process gets are passed on. Those of the keyboard are not: the terminal sends them to it.
    """
    pending: list[int] = []
    process: asyncio.subprocess.Process | None = None

    def pass_on(number: int) -> None:
        if number in OF_THE_KEYBOARD and _is_in_foreground():
            return
        if process is None:
            pending.append(number)
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)

    loop = asyncio.get_running_loop()
    for one in (*OF_THE_KEYBOARD, *PASSED_ON):
        loop.add_signal_handler(one, pass_on, one)
    try:
        process = await _start(command, environment)
        for number in pending:
            pass_on(number)
        status = await process.wait()
    finally:
        for one in (*OF_THE_KEYBOARD, *PASSED_ON):
            loop.remove_signal_handler(one)
    return KILLED - status if status < 0 else status


async def _start(command: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*command, env=environment)
    except FileNotFoundError as error:
        raise CannotRunError(f"{command[0]}: command not found", NOT_FOUND) from error
    except OSError as error:
        raise CannotRunError(f"{command[0]}: cannot be run: {error.strerror}", NOT_EXECUTABLE) from error


def _is_in_foreground() -> bool:
    """Whether this process has a terminal, and is in the group that gets its keyboard's signals."""
    with suppress(OSError), Path("/dev/tty").open("rb", 0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


class Family(Enum):
    """A family of clients: the variables with their base URL, what follows the server's address there, and more.

    others: variables that are set only if they were set before. Source: LiteLLM reads them.
    usual: the upstream of clients without a variable; None if they have none.
    key: the variable with these clients' key.
    """

    OPENAI = (("OPENAI_BASE_URL", "OPENAI_API_BASE"), (), "/v1", "https://api.openai.com/v1", "OPENAI_API_KEY")
    ANTHROPIC = (
        ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_BASE",),
        "",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
    )
    AZURE = (("AZURE_OPENAI_ENDPOINT",), ("AZURE_API_BASE",), "", None, "AZURE_OPENAI_API_KEY")

    def __init__(self, names: tuple[str, ...], others: tuple[str, ...], path: str, usual: str | None, key: str) -> None:
        self.names, self.others, self.path, self.usual, self.key = names, others, path, usual, key

    def find_before(self, environment: Mapping[str, str]) -> str | None:
        url = next((environment[name] for name in (*self.names, *self.others) if environment.get(name)), None)
        if url is None:
            return None
        url = url.rstrip("/")
        end = {Family.OPENAI: "", Family.ANTHROPIC: "/v1", Family.AZURE: "/openai/v1"}[self]
        return url if url.endswith(end) else f"{url}{end}"


class Destination(msgspec.Struct, frozen=True):
    """An upstream, and the families of clients whose requests go there by a proxy of their own."""

    base_url: str
    families: tuple[Family, ...]
    is_configured: bool  # whether it is the upstream of the configuration, with its key and settings

    def write_setting(self, config: Config) -> tuple[str, ...]:
        """The settings that make it the upstream. A key of the configuration belongs to another server."""
        if self.is_configured:
            return ()
        shared = config.upstream.model_dump(mode="json", include={"proxy", "ca_file"}, exclude_unset=True)
        return (f"upstream={orjson.dumps({'base_url': self.base_url, **shared}).decode()}",)


def choose_destinations(config: Config, environment: Mapping[str, str]) -> tuple[Destination, ...]:
    """The upstream of each family: the configuration's if it names one, else the variable's, else the usual one."""
    meant = _find_meant(config)
    # Azure's client for Node would prefer OPENAI_BASE_URL to AZURE_OPENAI_ENDPOINT, so that must stay unset.
    is_azure = bool(Family.AZURE.find_before(environment)) and not environment.get(Family.OPENAI.key)
    chosen: dict[tuple[str, bool], list[Family]] = {}
    for family in Family:
        before = family.find_before(environment)
        is_configured = family in meant or (family is Family.OPENAI and before is None and not meant)
        url = config.upstream.base_url if is_configured else before or family.usual
        if url is not None and (family in meant or before or not (is_azure and family is Family.OPENAI)):
            chosen.setdefault((url, is_configured), []).append(family)
    return tuple(Destination(url, tuple(families), is_configured) for (url, is_configured), families in chosen.items())


def _find_meant(config: Config) -> frozenset[Family]:
    """The families whose upstream the configuration names; all that it may serve if its host is not known."""
    if "upstream" not in config.model_fields_set or "base_url" not in config.upstream.model_fields_set:
        return frozenset()
    if config.upstream.provider is None and read_host(config.upstream.base_url) == OPENAI_HOST:
        return frozenset({Family.OPENAI})
    by_provider = {"anthropic": {Family.ANTHROPIC}, "azure": {Family.OPENAI, Family.AZURE}}
    return frozenset(by_provider.get(config.upstream.provider or "", {Family.OPENAI, Family.ANTHROPIC}))


def write_environment(environment: Mapping[str, str], urls: Iterable[tuple[Destination, str]]) -> dict[str, str]:
    """The command's environment, in which no forward proxy is asked for this machine. urls: of each destination."""
    written = dict(environment)
    for destination, url in urls:
        for family in destination.families:
            present = [name for name in family.others if environment.get(name)]
            written |= dict.fromkeys((*family.names, *present), f"{url}{family.path}")
    if any(environment.get(name) or environment.get(name.upper()) for name in PROXY_VARIABLES):
        exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        hosts = [*filter(None, exempt.split(",")), *_LOOPBACK]
        written |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(dict.fromkeys(hosts)))
    return written


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--upstream",
    metavar="URL",
    help="Server that requests go to. Default: that of the configuration; else the one that OPENAI_BASE_URL,"
    " ANTHROPIC_BASE_URL or AZURE_OPENAI_ENDPOINT names; else OpenAI's and Anthropic's own.",
)
@click.option("--quiet", is_flag=True, help="Print nothing to standard error.")
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that the log is appended to, as JSON. Default: there is no log.",
)
@takes_config
def wrap(
    command: tuple[str, ...],
    *,
    upstream: str | None,
    quiet: bool,
    log_file: Path | None,
    config_path: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Run COMMAND with the proxy in front of its models.

    The proxy listens on a free port of this machine. COMMAND gets the variables that clients of OpenAI, Anthropic and
    Azure read, or what an agent that trimtab knows reads instead, and its own keys pass on. When it ends, this prints
    to standard error what was saved. The status is that of COMMAND. Without COMMAND, this lists the agents.
    """
    wiring, complete = _wire(command)
    short = (f"upstream.base_url={upstream}",) if upstream else ()
    everything = (*settings, *short, *FIXED)
    with wrong_use():
        config = load_file(config_path, everything)
        proxied = [
            (one, load_file(config_path, (*everything, *one.write_setting(config))))
            for one in choose_destinations(config, wiring.environment)
        ]
    if shutil.which(command[0]) is None and not os.path.lexists(command[0]):  # before anything is started
        give_up(f"{command[0]}: command not found", NOT_FOUND)
    _open_log(log_file, config.log.level)
    tell: Callable[[str], None] = (lambda _: None) if quiet else (lambda line: click.echo(f"trimtab: {line}", err=True))
    if wiring.warning:
        tell(f"warning: {wiring.warning}")
    with wrong_use():
        sys.exit(uvloop.run(_wrap(complete, proxied, tell)))


def _wire(command: tuple[str, ...]) -> tuple[Wiring, Write]:
    if not command:
        formatter = click.HelpFormatter(width=shutil.get_terminal_size().columns)
        formatter.write_text("Agents that trimtab wrap knows, and how it leads them to the proxy:")
        with formatter.indentation():
            formatter.write_dl(list_agents())
        others = "Other commands get the variables that clients of OpenAI, Anthropic and Azure read."
        formatter.write_text(f"{others} Usage: trimtab wrap COMMAND")
        click.echo(formatter.getvalue().rstrip())
        sys.exit(WRONG_USE)  # as click ends a group without a command
    found = find_agent(command, os.environ)
    if found is None:
        return Wiring(os.environ), lambda _: command
    agent, start = found
    wiring = agent.wire(start)
    return wiring, lambda environment: (*command[: start.at], *wiring.write(environment), *command[start.at :])


def _open_log(file: Path | None, level: str) -> None:
    """Log to a file that only its owner can read; without one, to nowhere: the command owns the screen."""
    place = os.devnull if file is None else file
    try:
        number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise click.BadParameter(f"{place}: {error.strerror}", param_hint="--log-file") from error
    configure_log("error" if file is None else level, "json", file=os.fdopen(number, "wb"))


class _Recent(deque[Outcome]):
    """The newest requests. fitted: how many of all would not have fit their limit without trimtab."""

    fitted = 0

    def observe(self, outcomes: Iterable[Outcome]) -> None:
        for one in outcomes:
            self.fitted += one.original_tokens > one.limit_tokens >= one.sent_tokens > 0 and one.status == SUCCESS
            self.append(one)


async def _wrap(complete: Write, proxied: Sequence[tuple[Destination, Config]], tell: Callable[[str], None]) -> int:
    log = get_log()
    configs = []
    for _, config in proxied:
        soon = {"drain_seconds": min(config.limits.drain_seconds, DRAIN_SECONDS), "shutdown_delay_seconds": 0.0}
        configs.append(config.model_copy(update={"limits": config.limits.model_copy(update=soon)}))
    compactors, recent = Compactors(log, caches_bytes=measure_caches(configs[0])), _Recent(maxlen=NEWEST)
    try:
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(run_proxy(config, log, compactors)) for config in configs]
            for proxy in proxies:
                proxy.services.recorder.observers.append(recent.observe)
            destinations = [destination for destination, _ in proxied]
            for destination, proxy in zip(destinations, proxies, strict=True):
                names = ", ".join(family.names[0] for family in destination.families)
                page = f"; dashboard {proxy.url}/trimtab/" if proxy.services.config.dashboard.enabled else ""
                tell(f"{names} → {proxy.services.config.upstream.base_url}{page}")
            environment = write_environment(
                os.environ, zip(destinations, (proxy.url for proxy in proxies), strict=True)
            )
            status = await run_child(complete(environment), environment)
    except CannotRunError as error:
        click.echo(f"trimtab: {error}", err=True)
        return error.status
    except OSError as error:
        click.echo(f"trimtab: cannot listen on 127.0.0.1: {os.strerror(error.errno or 0)}", err=True)
        return 1
    metrics = [proxy.services.recorder.metrics for proxy in proxies]
    for line in _describe_end(Savings.read(*metrics), recent.fitted):
        tell(line)
    for alarm in find_alarms(recent, Samples.of(family for one in metrics for family in one.collect_all())):
        tell(f"warning: {alarm.describe()}")
    return status


def _describe_end(savings: Savings, fitted: int) -> list[str]:
    if not savings.requests:
        return ["no request came through the proxy; the command may take its server from a file or another variable"]
    more = list(savings.describe_cuts())
    more += [f"{count(fitted, 'request')} would not have fit"] if fitted else []
    more += [f"{count(savings.recovered, 'refused request')} sent again, shorter"] if savings.recovered else []
    more += [f"{savings.summary_tokens:,} tokens for summaries"] if savings.summary_tokens else []
    more += [f"{count(savings.fail_opens, 'fault')} of trimtab's own"] if savings.fail_opens else []
    return [savings.describe(), *(["; ".join(more)] if more else [])]
