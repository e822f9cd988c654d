"""What `trimtab serve` tells a person at the terminal: what to set, where the dashboard is, and what it saves.

Law: standard error only, and only if it is a terminal on which the log is text.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import click

from trimtab.proxy.cli.options import list_exports
from trimtab.proxy.config.schema import Config
from trimtab.proxy.server.reload import (
    tell_upstreams,
    warn_of_readers,
    warn_of_recording,
    warn_of_unknown_variables,
)
from trimtab.proxy.tasks import Tasks
from trimtab.proxy.telemetry.metrics import Metrics
from trimtab.proxy.telemetry.savings import Savings
from trimtab.proxy.telemetry.terminal import LiveLine

PAUSE_SECONDS = 1.0
"""Between two states of the live line. Chosen: a person reads no faster."""
DRAWER = 1
"""The number of the worker that shows the live line of all."""


@dataclass(frozen=True, slots=True)
class Screen:
    """The terminal.

    is_read: whether a person reads it.
    line: the live line; None if the terminal cannot show one.
    """

    is_read: bool = False
    line: LiveLine | None = None

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
        if workers is None:
            log.info("listening", url=f"{url}/v1", upstream=upstream, mode=mode, metrics=metrics)
        else:
            log.info("listening", url=f"{url}/v1", upstream=upstream, mode=mode, metrics=metrics, workers=workers)
        tell_upstreams(config, log)
        warn_of_recording(config, log)
        self.greet(config, url, pages_url)
        tell_systemd()

    @asynccontextmanager
    async def showing(self, metrics: Metrics, log: Any) -> AsyncIterator[None]:
        """Show what is saved, once a second from the first request on, while the block runs. The last line stays."""
        if self.line is None:
            yield
            return
        tasks = Tasks(lambda error: log.error("live_line_failed", error=type(error).__name__))
        _ = tasks.start(_show_again_and_again(metrics, self.line))
        try:
            yield
        finally:
            await tasks.close()
            await _show(metrics, self.line)
            self.line.end()


def tell_systemd() -> None:
    """Tell systemd that requests are accepted, if it has started this process as `Type=notify`.

    Source: sd_notify(3). A name that begins with @ is one of Linux' abstract sockets.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            told.send(b"READY=1")


def warn_of_risks(config: Config, log: Any) -> None:
    """Warn, before anything is served, of what may not be meant."""
    warn_of_readers(config, log)
    warn_of_unknown_variables(log)


async def _show_again_and_again(metrics: Metrics, line: LiveLine) -> None:
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        await _show(metrics, line)


async def _show(metrics: Metrics, line: LiveLine) -> None:
    savings = await asyncio.to_thread(Savings.read, metrics)
    if savings.requests:
        line.show(", ".join([savings.describe(), *savings.describe_cuts()]))
