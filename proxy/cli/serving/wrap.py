"""`trimtab wrap`: runs a command with the proxy in front of its models, and tells what was saved.

Law: the proxy listens on loopback only, and ends with the command. Standard output is the command's alone.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import uvloop

from proxy.cli.options import config_option, set_option, wrong_use
from proxy.cli.serving.child import NOT_FOUND, CannotRunError, run_child
from proxy.cli.serving.surroundings import Way, choose_ways, write_environment
from proxy.compaction.pool import CACHES_BYTES, Compactors
from proxy.config.load import load_file
from proxy.config.schema import Config
from proxy.memory import bound_caches
from proxy.server.app import Proxy, run_proxy
from proxy.telemetry.logs import configure_log, get_log
from proxy.telemetry.savings import Savings, count

FIXED = ("listen=127.0.0.1:0", "metrics_listen=null", "workers=1")
"""Settings of every wrapped proxy: a free port of this machine, and one process."""
DRAIN_SECONDS = 1.0
"""For requests that the command leaves behind. Chosen: nobody waits for their answers any more."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
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
@config_option
@set_option
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
    Azure read, and its own keys pass on. When it ends, this prints to standard error what was saved. The status is
    that of COMMAND.
    """
    short = (f"upstream.base_url={upstream}",) if upstream else ()
    everything = (*settings, *short, *FIXED)
    with wrong_use():
        config = load_file(config_path, everything)
        ways = choose_ways(config, os.environ)
        proxied = [(way, load_file(config_path, (*everything, *way.write_setting(config)))) for way in ways]
    if shutil.which(command[0]) is None and not os.path.lexists(command[0]):  # before anything is started
        click.echo(f"trimtab: {command[0]}: command not found", err=True)
        sys.exit(NOT_FOUND)
    _open_log(log_file, config.log.level)
    tell: Callable[[str], None] = (lambda _: None) if quiet else (lambda line: click.echo(f"trimtab: {line}", err=True))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, wrong_use():
        status = runner.run(_wrap(command, proxied, tell))
    sys.exit(status)


def _open_log(file: Path | None, level: str) -> None:
    """Log to a file that only its owner can read; without one, to nowhere: the command owns the screen."""
    place = os.devnull if file is None else file
    try:
        number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        message = f"{place}: {os.strerror(error.errno or 0)}"
        raise click.BadParameter(message, param_hint="--log-file") from error
    configure_log("error" if file is None else level, "json", file=os.fdopen(number, "wb"))


class _Watch:
    """The log, which also counts the requests that would not have fit their limit without trimtab."""

    def __init__(self, log: Any) -> None:
        self.debug, self.warning, self.error = log.debug, log.warning, log.error
        self._info = log.info
        self.fitted = 0

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        if event == "request":
            limit = fields.get("limit_tokens") or 0
            sent = fields.get("sent_tokens") or 0
            self.fitted += fields.get("original_tokens", 0) > limit >= sent > 0 and fields["status"] == 200
        self._info(event, **fields)


async def _wrap(command: Sequence[str], proxied: Sequence[tuple[Way, Config]], tell: Callable[[str], None]) -> int:
    """Run the proxies and the command; return the exit status."""
    log = _Watch(get_log())
    configs = [_without_long_drain(config) for _, config in proxied]
    caches_bytes = bound_caches(configs[0].limits.max_memory_bytes, CACHES_BYTES)
    compactors = Compactors(log, caches_bytes=caches_bytes)
    try:
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(run_proxy(config, log, compactors)) for config in configs]
            ways = [way for way, _ in proxied]
            for way, proxy in zip(ways, proxies, strict=True):
                tell(_describe_way(way, proxy))
            environment = write_environment(os.environ, zip(ways, (proxy.url for proxy in proxies), strict=True))
            status = await run_child(command, environment)
    except CannotRunError as error:
        click.echo(f"trimtab: {error}", err=True)
        return error.status
    except OSError as error:
        click.echo(f"trimtab: cannot listen on 127.0.0.1: {os.strerror(error.errno or 0)}", err=True)
        return 1
    savings = sum((Savings.read(proxy.services.recorder.metrics) for proxy in proxies), Savings())
    for line in _describe_end(savings, log.fitted):
        tell(line)
    return status


def _without_long_drain(config: Config) -> Config:
    limits = config.limits
    drain_seconds = min(limits.drain_seconds, DRAIN_SECONDS)
    shorter = limits.model_copy(update={"drain_seconds": drain_seconds, "shutdown_delay_seconds": 0.0})
    return config.model_copy(update={"limits": shorter})


def _describe_way(way: Way, proxy: Proxy) -> str:
    """Where requests go, and where to watch them."""
    names = ", ".join(family.names[0] for family in way.families)
    page = f"; dashboard {proxy.url}/trimtab/" if proxy.services.config.dashboard.enabled else ""
    return f"{names} → {proxy.services.config.upstream.base_url}{page}"


def _describe_end(savings: Savings, fitted: int) -> list[str]:
    """What was saved, line by line."""
    if not savings.requests:
        return ["no request came through the proxy; the command may take its server from a file or another variable"]
    more = list(savings.describe_cuts())
    more += [f"{count(fitted, 'request')} would not have fit"] if fitted else []
    more += [f"{count(savings.recovered, 'refused request')} sent again, shorter"] if savings.recovered else []
    more += [f"{savings.summary_tokens:,} tokens for summaries"] if savings.summary_tokens else []
    more += [f"{count(savings.fail_opens, 'fault')} of trimtab's own"] if savings.fail_opens else []
    return [savings.describe(), *(["; ".join(more)] if more else [])]
