"""`trimtab healthcheck`: tells container runtimes whether the proxy on this machine accepts requests.

Imports only what it needs, because runtimes call it every few seconds: `python -m trimtab.proxy.cli.healthcheck` takes
a third of the time of `trimtab healthcheck`.
"""

import http.client
import sys
from pathlib import Path

import click

from trimtab.proxy.config.document import ConfigError
from trimtab.proxy.config.load import load_address
from trimtab.proxy.config.values import own_host, site_url, split_address

PATH = "/trimtab/ready"
TIMEOUT_SECONDS = 2.0  # For the connection and for each read. Chosen: below the Dockerfile's five seconds.
READY = b'{"status":"ready"}'
DRAINING = b'{"status":"draining"}'


class UnwellError(Exception):
    """The proxy does not accept requests, or does not run. The message says why."""


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="The address of `serve`, if it was started with --listen.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="TRIMTAB_CONFIG",
    help="The configuration file of `serve`; also TRIMTAB_CONFIG.",
)
@click.option("--set", "settings", multiple=True, metavar="DOTTED.KEY=VALUE", help="The --set options of `serve`.")
def healthcheck(listen: str | None, config_path: Path | None, settings: tuple[str, ...]) -> None:
    """Ask the proxy on this machine whether it accepts requests. The status is 0 if it does, else 1.

    Give it the configuration of `serve`: it finds the address in the same options, environment variables and file.
    """
    try:
        ask_readiness(load_address(config_path, (*settings, *([f"listen={listen}"] if listen else ()))))
    except (ConfigError, UnwellError) as error:
        for line in str(error).splitlines():
            click.echo(f"trimtab: {line}", err=True)
        sys.exit(1)
    click.echo("ready")


def ask_readiness(listen: str) -> None:
    """Ask the proxy that listens at `listen`, never through a forward proxy. Raises UnwellError unless it is ready."""
    host, port = split_address(listen)
    if port == 0:
        message = "listen has port 0, which means any free port; name the port that serve logged: --listen HOST:PORT"
        raise UnwellError(message)
    url = f"{site_url(own_host(host), port)}{PATH}"
    try:
        said = read_page(listen, PATH)
    except (OSError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no answer in time, or not an HTTP answer"
        advice = "if serve got its address by --listen or --set, give the same option here; both read TRIMTAB_LISTEN"
        raise UnwellError(f"{url} does not answer: {reason.lower()}; {advice}") from error
    if said != READY:
        message = f"{url} is draining" if said == DRAINING else f"{url} is not answered by trimtab; check listen"
        raise UnwellError(message)


def read_page(listen: str, path: str, headers: dict[str, str] | None = None, most_bytes: int = 64) -> bytes:
    """The first bytes of a page of the server at `listen`; blocks for some seconds. Raises OSError, HTTPException."""
    host, port = split_address(listen)
    connection = http.client.HTTPConnection(own_host(host), port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().read(most_bytes)
    finally:
        connection.close()


if __name__ == "__main__":
    healthcheck(prog_name="trimtab healthcheck")
